-- Lets a lease run from now. ARGV: 1 owner, 2 lease in ms. Answers {1 if held, clock}.

local now = clock()
local r = load_head(KEYS[1], now)
if not (r and r.known and r.live and r.running and r.owner == ARGV[1]) then
  return { 0, now }
end
r.locked = now + tonumber(ARGV[2])
save_head(KEYS[1], r)
return { 1, now }
