-- Frees the key. ARGV: 1 owner. Answers {1 if freed, clock}.

local now = clock()
local r = load_head(KEYS[1], now)
if not (r and r.known and r.live and r.running and r.owner == ARGV[1]) then
  return { 0, now }
end
redis.call('DEL', KEYS[1])
tell(KEYS[1])
return { 1, now }
