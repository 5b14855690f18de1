-- Reads a record with the clock and the key's expiry. ARGV: 1 "1" to leave out answer and steps.
-- Answers {clock, the key's expiry, the record}, or nil.

local key = KEYS[1]
local now = clock()
local r = load_head(key, now)
if not r or not r.live then
  return false
end
if ARGV[1] == '1' and r.known then
  return { now, r.expiry, redis.call('GETRANGE', key, 0, HEAD + r.texts - 1) }
end
return { now, r.expiry, redis.call('GET', key) }
