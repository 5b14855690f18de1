-- What every script begins with: the layout of a record's value (codec.rs has the same in Rust) and
-- the server's clock. A record is one string value: a head of fixed length, then the texts, then
-- either the answer (headers, body) or the steps.
--
-- A first claim is written by `SET … NX GET PX`, which cannot write the time. Such a head holds
-- created_at = 0, and the claim's time follows from the key's own expiry, which the same command
-- set: created_at = expiry - max(ttl, lease). The first script that writes fills the times in. (Until then
-- locked_until is a lower bound, for those who do not know the expiry.)

local HEAD = 104
local FORMAT = '>c5 c1 i2 c16 i4 i8 i8 i8 i8 i8 i4 I4 I4 I4 I4 I4 I4 I4 I4'
local NONE = 4294967295 -- the length of something that is not there

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A number as Redis takes it: all its digits, no exponent.
local function whole(number)
  return string.format('%.0f', number)
end

-- The record in a value, or in its head; nil if the key is free, known = false if this release cannot
-- tell what it is. The key's expiry is asked for only where times follow from it: it is -1 otherwise.
local function understand(key, value, now)
  if value == false or value == '' and redis.call('EXISTS', key) == 0 then
    return nil
  end
  if #value < HEAD or string.sub(value, 1, 5) ~= 'idem\1' then
    return { known = false, live = true, expiry = -1 }
  end
  local magic, status, format, owner, attempt, created, locked, completed, ttl, lease, code,
    fingerprint, scope, name, path, route, headers, body, steps = struct.unpack(FORMAT, value)
  local expiry = -1
  if created == 0 then
    expiry = redis.call('PEXPIRETIME', key)
    if expiry < 0 then
      return { known = false, live = true, expiry = -1 }
    end
    created = expiry - math.max(ttl, lease)
    locked = created + lease
  end
  local expires = created + ttl
  local running = status == 'P'
  local ends = running and math.max(expires, locked) or expires
  -- In one piece: a table that grows field by field is laid out anew again and again.
  return {
    known = true, expiry = expiry, magic = magic, status = status, format = format, owner = owner,
    attempt = attempt, created = created, locked = locked, completed = completed, ttl = ttl,
    lease = lease, code = code, fingerprint = fingerprint, scope = scope, key = name, path = path,
    route = route, headers = headers, body = body, steps = steps,
    texts = fingerprint + scope + name + path + route, running = running, expires = expires,
    ends = ends, live = ends > now,
  }
end

local function load_head(key, now)
  return understand(key, redis.call('GETRANGE', key, 0, HEAD - 1), now)
end

local function pack(r)
  return struct.pack(FORMAT, r.magic, r.status, r.format, r.owner, r.attempt, r.created, r.locked,
    r.completed, r.ttl, r.lease, r.code, r.fingerprint, r.scope, r.key, r.path, r.route, r.headers,
    r.body, r.steps)
end

-- Writes a running record's head in place and moves the key's expiry with the lease, where the lease
-- reaches beyond the TTL.
local function save_head(key, r)
  redis.call('SETRANGE', key, 0, pack(r))
  local ends = math.max(r.expires, r.locked)
  if ends ~= r.ends then
    redis.call('PEXPIREAT', key, whole(ends))
  end
end

-- Tells those who wait for a record that it is settled. To publish costs a cluster much more than to
-- ask whether anybody listens. Without the right to either, they look.
local function tell(key)
  local listening = redis.pcall('PUBSUB', 'SHARDNUMSUB', key)
  if listening.err or listening[2] ~= 0 then
    redis.pcall('SPUBLISH', key, '')
  end
end
