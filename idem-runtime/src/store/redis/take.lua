-- Takes an abandoned record for reconciliation, if it is still the one that was seen.
-- ARGV: 1 the owner that was seen, 2 the new owner, 3 lease in ms, 4 format.
-- Answers {clock, the key's expiry, the record}, or nil.

local key = KEYS[1]
local now = clock()
local value = redis.call('GET', key)
local r = understand(key, value, now)
if not (r and r.known and r.live and r.running and r.owner == ARGV[1] and r.locked <= now
    and r.format == tonumber(ARGV[4])) then
  return false
end
r.owner = ARGV[2]
r.locked = now + tonumber(ARGV[3])
save_head(key, r)
return { now, r.expiry, pack(r) .. string.sub(value, HEAD + 1) }
