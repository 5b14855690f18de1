-- Finishes a record: the answer takes the place of the steps, the TTL goes on as it was.
-- ARGV: 1 owner, 2 status, 3 response code, 4 length of the headers, 5 length of the body,
--       6 headers and body. Answers {1 if it is finished, clock}.

local key = KEYS[1]
local now = clock()
local value = redis.call('GET', key)
local r = understand(key, value, now)
if not (r and r.known and r.live and r.owner == ARGV[1]) then
  return { 0, now }
end
if not r.running then
  return { 1, now } -- finished before, by the same owner: its answer got lost
end
if r.expires <= now then
  -- Only the lease kept it: with the work done, nothing is left to stand.
  redis.call('DEL', key)
  tell(key)
  return { 1, now }
end
local kept = string.sub(value, HEAD + 1, HEAD + r.texts)
r.status = ARGV[2]
r.completed = now
r.code = tonumber(ARGV[3])
r.headers = tonumber(ARGV[4])
r.body = tonumber(ARGV[5])
r.steps = NONE
local finished = pack(r) .. kept .. ARGV[6]
if r.expiry == r.expires then
  redis.call('SET', key, finished, 'KEEPTTL') -- it is right as it stands, which is cheaper than to say it
else
  redis.call('SET', key, finished, 'PXAT', whole(r.expires))
end
tell(key)
return { 1, now }
