-- Decides a claim by the server's clock. Called where the plain `SET … NX GET PX` met a record that
-- only the clock can judge.
-- ARGV: 1 the new record, 2 its expiry in ms, 3 owner, 4 lease in ms, 5 "1" if it may be taken over,
--       6 fingerprint, 7 older fingerprint or "", 8 format, 9 "1" if the server's memory is full
-- Answers {what became of it, clock, the key's expiry, the standing record}.

local key = KEYS[1]
local now = clock()
local value = redis.call('GET', key)
local r = understand(key, value, now)

if not r or not r.live then
  if ARGV[9] == '1' then
    return { 'full', now, -1, '' }
  end
  redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
  return { 'fresh', now, -1, '' }
end

local verdict = 'standing'
if r.known and r.running then
  if r.owner == ARGV[3] then
    verdict = 'won'
  elseif ARGV[5] == '1' and r.locked <= now and r.format == tonumber(ARGV[8]) then
    local fingerprint = string.sub(value, HEAD + 1, HEAD + r.fingerprint)
    if fingerprint == ARGV[6] or (ARGV[7] ~= '' and fingerprint == ARGV[7]) then
      r.owner = ARGV[3]
      r.attempt = r.attempt + 1
      r.locked = now + tonumber(ARGV[4])
      save_head(key, r)
      value = pack(r) .. string.sub(value, HEAD + 1)
      verdict = 'won'
    end
  end
end
return { verdict, now, r.expiry, value }
