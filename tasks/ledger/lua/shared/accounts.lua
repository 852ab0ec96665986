-- Accounts: what is left to do, and who fills how much of Redis.
local MEMORY, RESERVED = R .. ':memory-seen', R .. ':reserved'
local HELD, HELD_UNTIL = R .. ':held', R .. ':held-until'

local seen                              -- what WATCH wrote of the memory, read once
local function memory()                 -- bytes that Redis uses and its limit, as WATCH saw them; nil: no limit, or unseen
  seen = seen or call('GET', MEMORY) or ''
  local used, limit = string.match(seen, '^(%d+) (%d+)$')
  if used and tonumber(limit) > 0 then return tonumber(used), tonumber(limit) end
end
local filled = 0                        -- bytes that this script has stored
local function write_memory()           -- until WATCH looks again
  local used, limit = memory()
  if used and filled > 0 then call('SET', MEMORY, int(used + filled) .. ' ' .. int(limit), 'KEEPTTL') end
end

-- What a script adds to sums is gathered, of however many tasks, and written by write_sums: what is read of them before
-- is as it was. A command costs as much as dozens of fields, and one HINCRBY for each sum of each task was most of a COMMIT.
local sums, reserved = {}, 0            -- hash -> field -> n; bytes
local promised                          -- bytes reserved in all, read once
local function memory_room(percent)     -- bytes up to so much of the limit, without what is promised; nil: no limit
  local used, limit = memory()
  if not used then return end
  promised = promised or tonumber(call('GET', RESERVED) or 0)
  return limit * percent / 100 - used - filled - promised - reserved
end
local passing, counted = {}, {}         -- fields that go when they come to 0; those whose coming and going is counted, and where
local function tally(name, n, hash)
  hash = hash or S
  local changes = sums[hash] or {}
  sums[hash], changes[name] = changes, (changes[name] or 0) + n
end
local function add(hash, name, n)       -- of an owner: nothing stays of what has come to 0
  passing[name] = true
  tally(name, n, hash)
end
local function write_many(hash, changes, names)
  local before = call('HMGET', hash, unpack(names))
  for i, name in ipairs(names) do
    local was = tonumber(before[i] or 0)
    local is, owners = was + changes[name], counted[name]
    if owners and (was > 0) ~= (is > 0) then changes[owners] = changes[owners] + (is > 0 and 1 or -1) end
  end
  local set, gone = {}, {}
  for i, name in ipairs(names) do
    local sum = tonumber(before[i] or 0) + changes[name]
    if sum == 0 and passing[name] then gone[#gone + 1] = name
    elseif changes[name] ~= 0 then
      set[#set + 1] = name
      set[#set + 1] = int(sum)
    end
  end
  if #gone > 0 then call('HDEL', hash, unpack(gone)) end
  if #set > 0 then call('HSET', hash, unpack(set)) end
end
local function write_sums()
  for hash, changes in pairs(sums) do
    local names = {}
    for name in pairs(changes) do names[#names + 1] = name end
    local only = #names == 1 and changes[names[1]] > 0 and names[1]  -- as of SUBMIT: it grows, and no other sum with it
    if only then call('HINCRBY', hash, only, int(changes[only])) else write_many(hash, changes, names) end
  end
  if reserved ~= 0 then call('INCRBY', RESERVED, int(reserved)) end
  promised = promised and promised + reserved
  sums, reserved = {}, 0
end
local function owe(lane, owner, cost)
  tally('cost_' .. lane, cost)
  add(S, 'cost_' .. lane .. ':' .. owner, cost)
end
local function count_open(lane, owner, n, bytes)  -- one task more or less, with its payload
  local tasks, owners = 'tasks_' .. lane .. ':' .. owner, 'owners_' .. lane
  tally('tasks_' .. lane, n)
  add(S, tasks, n)
  counted[tasks] = owners
  tally(owners, 0)
  tally('bytes', bytes)
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
  if not (sums[HELD] and sums[HELD][entry]) then call('ZADD', HELD_UNTIL, ends, entry) end
  add(HELD, entry, bytes)
end
local function drop_results(entry, bytes)  -- so many bytes of an entry; all that it has when nil
  local kept = tonumber(call('HGET', HELD, entry) or 0)
  bytes = math.min(bytes or kept, kept)
  add(HELD, string.match(entry, '^%d+ (.*)$'), 0 - bytes)
  add(HELD, entry, 0 - bytes)
  if bytes == kept then call('ZREM', HELD_UNTIL, entry) end
  write_sums()
end
