-- What every script needs: arguments, clock, names of keys (described in ../../keys.py), units as text, and what clients
-- are told. ARGV: root, clock, queue, then the script's own.
-- The clock is milliseconds to add to the server's, or in tests "@" and the time itself.
--
-- Traps: Redis refuses a script's writes at maxmemory only until its first write, so SUBMIT starts with a write that
-- can be refused and everything that finishes or frees work starts with one that cannot (allowed_when_full). Nothing is
-- rolled back after an error in the middle: validate first. ".." prints 14 digits of a number, so numbers are written
-- by int(). "-0" is no integer to HINCRBY, so subtract as 0 - n.
local call = redis.call
local R, OWN = ARGV[1], 4
local DUE = R .. ':due'
local QUEUE, Q, S, LEASES, LINGER, DEADLINES, WORKERS, RATES
local function use_queue(queue)         -- the functions below work on its keys
  QUEUE, Q = queue, R .. ':q:' .. queue
  S, LEASES, LINGER, DEADLINES = Q .. ':state', Q .. ':leases', Q .. ':lingering', Q .. ':deadlines'
  WORKERS, RATES = Q .. ':workers', Q .. ':rates'
end
use_queue(ARGV[3])
local STEPS = R .. ':q:@documents:wake:steps'  -- the channel of the documents workers' steppers
local FIRST = 3             -- ARGV[FIRST + 1] is the script's first own argument

local function arg(i) return ARGV[FIRST + i] end
-- The first n arguments, or the n behind ARGV[at]. A script that takes more than six has `local a, b, ... = named(n)`.
-- The executor reads the names there and sends the values in their order, so the order stands in one place. Names that
-- travelled with each call made a CLAIM slower: 6 to 13 of 75 microseconds.
local function named(n, at) return unpack(ARGV, (at or FIRST) + 1, (at or FIRST) + n) end
local function int(n) return string.format('%.0f', n) end

local NOW
do
  local time, frozen = call('TIME'), string.match(ARGV[2], '^@(%d+)$')
  NOW = tonumber(frozen) or time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])
end

local function task_key(id) return R .. ':task:' .. id end
local function units_key(id) return R .. ':units:' .. id end
local function back_key(id) return R .. ':back:' .. id end
local function suspects_key(id) return R .. ':suspects:' .. id end
local function result_key(id) return R .. ':result:' .. id end
local function meta_key(id) return R .. ':meta:' .. id end
local function alias_key(owner, name) return R .. ':alias:' .. owner .. ':' .. name end
local function tasks_key(owner) return R .. ':tasks:' .. owner end
local function open_key(owner) return R .. ':open:' .. owner end
local function claim_key(token) return Q .. ':claim:' .. token end
local function lane_key(lane) return Q .. ':' .. lane end
local function owner_key(lane, owner) return Q .. ':' .. lane .. ':' .. owner end

local OPEN = {queued = true, in_progress = true}
local function state_of(id)             -- false: unknown, also when it is a task of another model
  local f = call('HMGET', task_key(id), 'state', 'q')
  return f[2] == QUEUE and f[1]
end
local function alias_of(id, owner, name) -- its key; nil when a later task has taken the name over
  local key = alias_key(owner, name)
  local entry = call('GET', key)
  if entry and string.match(entry, '^%S+') == id then return key end
end

-- The stamp of the model that the queue's workers serve; false where nobody has said it. All claims are of such workers:
-- REGISTER takes back those of the model before, and CLAIM gives nothing to a worker of another one. So whatever is
-- committed was made by this model, and a task remembers it from its first vectors on.
local function served() return call('HGET', S, 'serves') end

local function allowed_when_full() call('ZREM', LINGER, '') end

local function count(name, n)
  if n ~= 0 then call('HINCRBY', S, 'n_' .. name, int(n)) end
end

-- Pieces as one message: a line of their lengths, then the pieces. ../../answers.py takes it apart.
local function packed(pieces)
  local lengths = {}
  for i, piece in ipairs(pieces) do lengths[i] = #piece end
  return table.concat(lengths, ' ') .. '\n' .. table.concat(pieces)
end

-- What all web tier processes are told: one message per script. What one of them alone is told: shared/answers.lua.
local ended_ids = {}
local function announce()
  if #ended_ids > 0 then call('PUBLISH', R .. ':ended', table.concat(ended_ids, ' ')) end
end
local function count_of_documents(name, n)  -- into the state of the documents queue, whose metrics they are
  call('HINCRBY', R .. ':q:@documents:state', name, int(n))
end
local function wake_steps() call('PUBLISH', STEPS, 'step') end  -- a batch or an ingestion may be moved on

-- Units: "first items cost attempts root offset token", "-" for no token.
local function unit_record(text)
  local first, items, cost, attempts, root, offset, token =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%S+)$')
  return {first = tonumber(first), items = tonumber(items), cost = tonumber(cost), attempts = tonumber(attempts),
    root = root, offset = tonumber(offset), token = token}
end
local function unit_text(u)
  return table.concat({int(u.first), int(u.items), int(u.cost), int(u.attempts), u.root, int(u.offset), u.token}, ' ')
end
