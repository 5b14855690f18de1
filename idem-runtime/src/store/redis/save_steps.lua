-- Keeps the results of durable steps. ARGV: 1 owner, 2 steps. Answers {1 if kept, clock}.

local key = KEYS[1]
local now = clock()
local value = redis.call('GET', key)
local r = understand(key, value, now)
if not (r and r.known and r.live and r.running and r.owner == ARGV[1]) then
  return { 0, now }
end
local kept = string.sub(value, HEAD + 1, HEAD + r.texts)
r.steps = #ARGV[2]
redis.call('SET', key, pack(r) .. kept .. ARGV[2], 'KEEPTTL')
return { 1, now }
