-- Accounts: what is left to do, and who fills how much of Redis.
local MEMORY, RESERVED = R .. ':memory', R .. ':reserved'
local HELD, HELD_UNTIL = R .. ':held', R .. ':held-until'

local function memory()                 -- bytes that Redis uses and its limit, as WATCH saw them; nil: no limit, or unseen
  local used, limit = string.match(call('GET', MEMORY) or '', '^(%d+) (%d+)$')
  if used and tonumber(limit) > 0 then return tonumber(used), tonumber(limit) end
end
local function memory_room(percent)     -- bytes up to so much of the limit, without what is promised; nil: no limit
  local used, limit = memory()
  return used and limit * percent / 100 - used - tonumber(call('GET', RESERVED) or 0)
end

local function add(hash, name, n)       -- of an owner: nothing stays of what has come to 0
  if n == 0 then return end
  local sum = call('HINCRBY', hash, name, int(n))
  if sum == 0 then call('HDEL', hash, name) end
  return sum
end
local function owe(lane, owner, cost)
  if cost == 0 then return end
  call('HINCRBY', S, 'cost_' .. lane, int(cost))
  add(S, 'cost_' .. lane .. ':' .. owner, cost)
end
local function count_open(lane, owner, n, bytes)  -- one task more or less, with its payload
  call('HINCRBY', S, 'tasks_' .. lane, n)
  if add(S, 'tasks_' .. lane .. ':' .. owner, n) == math.max(n, 0) then call('HINCRBY', S, 'owners_' .. lane, n) end
  if bytes == 0 then return end
  call('HINCRBY', S, 'bytes', int(bytes))
  add(S, 'bytes:' .. owner, bytes)
end

-- Results expire silently, so what they fill is entered under a moment at or after their end: WATCH counts it out.
-- Moments are as far apart as a 64th to a 32nd of the time that results live, so an owner has few of them.
local function results_entry(owner, finished, ttl)
  local _, exponent = math.frexp(ttl / 32)
  local apart = 2 ^ math.max(0, exponent - 1)
  local ends = int(math.ceil((finished + ttl) / apart) * apart)
  return ends .. ' ' .. owner, ends
end
local function keep_results(owner, bytes, ttl)
  if bytes <= 0 then return end
  local entry, ends = results_entry(owner, NOW, ttl)
  add(HELD, owner, bytes)
  add(HELD, entry, bytes)
  call('ZADD', HELD_UNTIL, ends, entry)
end
local function drop_results(entry, bytes)  -- so many bytes of an entry; all that it has when nil
  local kept = tonumber(call('HGET', HELD, entry) or 0)
  bytes = math.min(bytes or kept, kept)
  add(HELD, string.match(entry, '^%d+ (.*)$'), 0 - bytes)
  add(HELD, entry, 0 - bytes)
  if bytes == kept then call('ZREM', HELD_UNTIL, entry) end
end
