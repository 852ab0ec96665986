-- Shared by all scripts. ARGV: root, clock, queue, then the script's own. Keys are described in ../keys.py.
-- The clock is milliseconds to add to the server's, or in tests "@" and the time itself.
--
-- Traps: Redis refuses a script's writes at maxmemory only until its first write, so SUBMIT starts with a write that
-- can be refused and everything that finishes or frees work starts with one that cannot (allowed_when_full). Nothing is
-- rolled back after an error in the middle: validate first. ".." prints 14 digits of a number, so numbers are written
-- by int(). "-0" is no integer to HINCRBY, so subtract as 0 - n.
local call = redis.call
local R = ARGV[1]
local QUEUE, Q, S, LEASES, LINGER, DEADLINES, WORKERS, RATES
local function use_queue(queue)         -- the functions below work on its keys
  QUEUE, Q = queue, R .. ':q:' .. queue
  S, LEASES, LINGER, DEADLINES = Q .. ':state', Q .. ':leases', Q .. ':lingering', Q .. ':deadlines'
  WORKERS, RATES = Q .. ':workers', Q .. ':rates'
end
use_queue(ARGV[3])
local STEPS = R .. ':q:@documents:wake:steps'  -- the channel of the documents workers' steppers
local MEMORY, RESERVED = R .. ':memory', R .. ':reserved'
local HELD, HELD_UNTIL = R .. ':held', R .. ':held-until'
local BELL_MS = 1000        -- a bell is believed this long, doubling with each unanswered ring up to 32 times
local DEATHS_ALONE = 3      -- an item fails after killing its worker this often while it was alone
local TASK_BYTES = 1024      -- keys and counts of a task, beside its payload and its vectors
local STILL_MS = 5000       -- somebody looks at the clock more often than this, or it was no time in which work could move
local MAX_LEASE_MS = 600000 -- a lease further away than this is the work of a clock that jumped
local FIRST = 3             -- ARGV[FIRST + 1] is the script's first own argument

local function arg(i) return ARGV[FIRST + i] end
-- The first n arguments, of a script that takes more than six. Such a script begins with `local a, b, ... = named(n)`.
-- The executor reads the names there and sends the values in their order, so the order stands in one place. Names that
-- travelled with each call made a CLAIM slower: 6 to 13 of 75 microseconds.
local function named(n) return unpack(ARGV, FIRST + 1, FIRST + n) end
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

-- ---- what clients are told: one message per script --------------------------------------------------------------

local ended_ids, changed_ids = {}, {}
local function announce()
  if #ended_ids + #changed_ids > 0 then
    call('PUBLISH', R .. ':changed', table.concat(ended_ids, ' ') .. '|' .. table.concat(changed_ids, ' '))
  end
end
local function wake_steps() call('PUBLISH', STEPS, 'step') end  -- a batch or an ingestion may be moved on

-- ---- units: "first items cost attempts root offset token", "-" for no token --------------------------------------

local function unit_record(text)
  local first, items, cost, attempts, root, offset, token =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%S+)$')
  return {first = tonumber(first), items = tonumber(items), cost = tonumber(cost), attempts = tonumber(attempts),
    root = root, offset = tonumber(offset), token = token}
end
local function unit_text(u)
  return table.concat({int(u.first), int(u.items), int(u.cost), int(u.attempts), u.root, int(u.offset), u.token}, ' ')
end

-- ---- lanes: owners take turns by cost, and so do the tasks of one owner -------------------------------------------
-- Self-clocked fair queueing: a task's tag is the virtual time plus the cost of its next unit, an owner's pass is the
-- cost it has been served. The lowest goes first; virtual time is the tag (pass) of the last one served. An owner's
-- pass is remembered, so that many short tasks cannot overtake one long task for ever.
-- Texts whose worker died are in no lane: they run alone, and whoever could not take one would stop at the first (40 of
-- them blocked the online lane for half a minute). They wait in a line of their own, 'suspects', in which owners and
-- tasks take turns in the same way.

local function enter_lane(id, lane, owner, cost)
  local v = call('HMGET', S, 'tvt_' .. lane .. ':' .. owner, 'pass_' .. lane .. ':' .. owner, 'vt_' .. lane)
  call('ZADD', owner_key(lane, owner), 'NX', int(tonumber(v[1] or 0) + cost), id)
  call('ZADD', lane_key(lane), 'NX', int(math.max(tonumber(v[2] or 0), tonumber(v[3] or 0))), owner)
end
local function leave_lane(id, lane, owner)
  call('ZREM', owner_key(lane, owner), id)
  if call('EXISTS', owner_key(lane, owner)) == 0 then call('ZREM', lane_key(lane), owner) end
end
local function ready()
  return call('ZCARD', lane_key('online')) + call('ZCARD', lane_key('bulk')) + call('ZCARD', lane_key('suspects'))
end

-- ---- wake-up ------------------------------------------------------------------------------------------------------

local function ring()                   -- 1: the caller must send the bell message
  local bell = call('HMGET', S, 'bell', 'rings')
  local at, rings = tonumber(bell[1] or ''), tonumber(bell[2] or 0)
  if at and NOW >= at and NOW - at < BELL_MS * 2 ^ math.min(math.max(rings - 1, 0), 5) then return 0 end
  call('HSET', S, 'bell', int(NOW), 'rings', rings + 1)
  count('rings', 1)
  return 1
end
local function stop_lingering(worker)   -- none of its streams waits any more
  for _, name in ipairs(call('ZRANGE', LINGER, 0, -1)) do
    if string.match(name, '^[^/]*') == worker then call('ZREM', LINGER, name) end
  end
end
local function wake_lingerer()          -- true: a live socket got the word
  for _ = 1, 16 do
    local worker = call('ZPOPMAX', LINGER)
    if not worker[1] then return false end
    if tonumber(worker[2]) > NOW and call('PUBLISH', Q .. ':wake:' .. worker[1], 'work') > 0 then return true end
  end
  return false
end
local function wake()
  if wake_lingerer() then return 0 end
  return ring()
end

-- ---- accounts: what is left to do, and who fills how much of Redis -------------------------------------------------

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

-- ---- tasks that come in -------------------------------------------------------------------------------------------

local function measure(at, units)       -- of so many units from ARGV[at] on: their items, cost and bytes
  local total, cost, bytes = 0, 0, 0
  for i = at, at + 3 * units - 1, 3 do
    total, cost, bytes = total + tonumber(ARGV[i]), cost + tonumber(ARGV[i + 1]), bytes + #ARGV[i + 2]
  end
  return total, cost, bytes
end
local function room_for(total, vector_bytes)  -- which the vectors of so many items may need
  return vector_bytes > 0 and total * vector_bytes + TASK_BYTES or 0
end
-- t: id lane owner ttl options meta alias digest listed wakes deadline_in, and of its units (ARGV[at]: items, cost and
-- payload of the first one) units at total cost bytes reserve. `write` does the first write. A full Redis refuses that
-- one, before anything has changed; what it said is returned.
local function store_task(t, write)
  local id, lane, owner = t.id, t.lane, t.owner
  local stored = write('HSET', task_key(id), 'q', QUEUE, 'lane', lane, 'owner', owner, 'state', 'queued',
    'total', int(t.total), 'completed', 0, 'failed', 0, 'units', int(t.units), 'next', 0, 'back', 0,
    'cost', int(t.cost), 'bytes', int(t.bytes), 'reserve', int(t.reserve), 'held', int(t.bytes + t.reserve),
    'created', int(NOW), 'ttl', int(t.ttl), 'tokens', 0, 'version', 1)
  if type(stored) == 'table' and stored.err then return stored.err end
  if t.options ~= '' then call('HSET', task_key(id), 'options', t.options) end
  if t.wakes then call('HSET', task_key(id), 'wakes', 1) end
  if t.listed then
    call('HSET', task_key(id), 'listed', 1)
    call('ZADD', tasks_key(owner), 0, id)
    if call('INCR', open_key(owner)) == 1 then call('PERSIST', tasks_key(owner)) end
    -- Tasks expire silently. One comes and two are looked at, so the list cannot fill up with those that are gone.
    for _, other in ipairs(call('ZRANDMEMBER', tasks_key(owner), -2)) do
      if call('EXISTS', task_key(other)) == 0 then call('ZREM', tasks_key(owner), other) end
    end
  end
  if t.meta ~= '' then call('SET', meta_key(id), t.meta) end
  if t.deadline_in > 0 then
    call('HSET', task_key(id), 'deadline', int(NOW + t.deadline_in))
    call('ZADD', DEADLINES, int(NOW + t.deadline_in), id)
  end
  if t.alias ~= '' then
    call('HSET', task_key(id), 'alias', t.alias)
    call('SET', alias_key(owner, t.alias), id .. ' ' .. t.digest)
  end
  local first = 0
  for i = 0, t.units - 1 do
    local at = t.at + 3 * i
    local items = tonumber(ARGV[at])
    call('HSET', units_key(id), 'u' .. int(i), unit_text({first = first, items = items, cost = tonumber(ARGV[at + 1]),
      attempts = 0, root = int(i), offset = 0, token = '-'}), 'p' .. int(i), ARGV[at + 2])
    first = first + items
  end
  owe(lane, owner, t.cost)
  count_open(lane, owner, 1, t.bytes)
  add(HELD, owner, t.bytes + t.reserve)
  call('INCRBY', RESERVED, int(t.reserve))
  enter_lane(id, lane, owner, tonumber(ARGV[t.at + 1]))
end
-- Successors: tasks of work that was let in long ago, so they are not judged again. They are named from ARGV[at] on,
-- for each: JSON {id queue lane owner ttl options vector_bytes wakes}, number of units, then per unit items cost payload.
-- Each is stored in its own queue, unless it is there. Returns the queues for which the caller must ring.
local function enqueue(at)
  local rings, own = {}, QUEUE
  while ARGV[at] do
    local t = cjson.decode(ARGV[at])
    t.units, t.at = tonumber(ARGV[at + 1]), at + 2
    use_queue(t.queue)
    if call('EXISTS', task_key(t.id)) == 0 then
      t.total, t.cost, t.bytes = measure(t.at, t.units)
      t.reserve, t.meta, t.alias, t.deadline_in = room_for(t.total, t.vector_bytes), '', '', 0
      store_task(t, call)
    end
    if ready() > 0 and wake() == 1 then rings[#rings + 1] = t.queue end
    at = at + 2 + 3 * t.units
  end
  use_queue(own)
  return rings
end

-- ---- the end of tasks ---------------------------------------------------------------------------------------------

-- t: lane, owner, ttl, cost (what is left), bytes, reserve (what is left), held, alias, deadline, version, listed, wakes.
-- Constant work, whatever the task's size.
local function finish(id, state, t)
  local kept = t.held - t.bytes - t.reserve
  call('HSET', task_key(id), 'state', state, 'finished', int(NOW), 'version', int(t.version + 1), 'held', int(kept))
  if t.deadline then call('ZREM', DEADLINES, id) end
  call('UNLINK', units_key(id), back_key(id), suspects_key(id))
  for _, key in ipairs({task_key(id), result_key(id), meta_key(id)}) do call('PEXPIRE', key, t.ttl) end
  local alias = t.alias and alias_of(id, t.owner, t.alias)
  if alias then call('PEXPIRE', alias, t.ttl) end
  if t.listed and call('DECR', open_key(t.owner)) <= 0 then
    call('DEL', open_key(t.owner))
    call('PEXPIRE', tasks_key(t.owner), t.ttl)
  end
  owe(t.lane, t.owner, 0 - t.cost)
  count_open(t.lane, t.owner, -1, 0 - t.bytes)
  if t.reserve > 0 then call('DECRBY', RESERVED, int(t.reserve)) end
  add(HELD, t.owner, 0 - t.held)
  keep_results(t.owner, kept, t.ttl)
  ended_ids[#ended_ids + 1] = id
  if t.wakes then wake_steps() end
end
local function end_task(id, state)      -- cancel, deadline, another model; false when it is not open
  local f = call('HMGET', task_key(id), 'state', 'lane', 'owner', 'ttl', 'cost', 'bytes', 'alias', 'version', 'reserve',
    'listed', 'held', 'completed', 'failed', 'total', 'wakes')
  if not f[1] or not OPEN[f[1]] then return false end
  if state == 'model_changed' then      -- the vectors it has are good; its other items have failed
    local failed = tonumber(f[14]) - tonumber(f[12])
    call('HSET', task_key(id), 'failed', int(failed), 'ended_by', state)
    count('failed_items', failed - tonumber(f[13]))
    state = tonumber(f[12]) > 0 and 'completed' or 'failed'
  end
  leave_lane(id, f[2], f[3])
  if call('EXISTS', suspects_key(id)) == 1 then leave_lane(id, 'suspects', f[3]) end
  finish(id, state, {lane = f[2], owner = f[3], ttl = f[4], cost = tonumber(f[5]), bytes = tonumber(f[6]), alias = f[7],
    deadline = true, version = tonumber(f[8]), reserve = tonumber(f[9] or 0), listed = f[10], held = tonumber(f[11]),
    wakes = f[15]})
  return true
end

-- Units that ended are gathered per task, so that a task is read and written once however many of its units ended.
local settling = {}
local function settle(id, ok, failed, cost, tokens)
  local t = settling[id]
  if not t then
    local f = call('HMGET', task_key(id), 'completed', 'failed', 'cost', 'total', 'lane', 'ttl', 'deadline', 'owner',
      'version', 'tokens', 'bytes', 'alias', 'reserve', 'listed', 'held', 'wakes')
    t = {ok = tonumber(f[1]), failed = tonumber(f[2]), cost = tonumber(f[3]), total = tonumber(f[4]), lane = f[5],
      ttl = f[6], deadline = f[7], owner = f[8], version = tonumber(f[9]), tokens = tonumber(f[10]),
      bytes = tonumber(f[11]), alias = f[12], reserve = tonumber(f[13] or 0), listed = f[14],
      held = tonumber(f[15]), wakes = f[16], spent = 0, ended = 0}
    settling[id] = t
  end
  t.ok, t.failed, t.cost, t.tokens = t.ok + ok, t.failed + failed, t.cost - cost, t.tokens + tokens
  t.spent, t.ended, t.made = t.spent + cost, t.ended + ok + failed, t.made or ok > 0
end
local function settled()
  local serves
  for id, t in pairs(settling) do
    t.version = t.version + 1
    if t.reserve > 0 then               -- what has its vector needs no more room than it has
      local left = t.total - t.ok - t.failed
      local reserve = math.floor(t.reserve * left / (left + t.ended))
      call('DECRBY', RESERVED, int(t.reserve - reserve))
      call('HSET', task_key(id), 'reserve', int(reserve))
      t.reserve = reserve
    end
    call('HSET', task_key(id), 'completed', int(t.ok), 'failed', int(t.failed), 'cost', int(t.cost),
      'tokens', int(t.tokens), 'version', int(t.version))
    owe(t.lane, t.owner, 0 - t.spent)
    if t.made and t.ok + t.failed < t.total then  -- what comes later must be of the same model
      if serves == nil then serves = served() end
      if serves then call('HSET', task_key(id), 'made_by', serves) end
    end
    if t.ok + t.failed >= t.total then finish(id, t.ok > 0 and 'completed' or 'failed', t)
    else changed_ids[#changed_ids + 1] = id end
  end
  settling = {}
end

-- ---- units that come back -----------------------------------------------------------------------------------------

local LOST = '{"errors":[[%s,"worker_lost","The worker died each time it tried this item alone."]],"truncated":[]}'

local function give_back(id, uid, u, lane, owner)
  call('HSET', units_key(id), 'u' .. uid, unit_text(u))
  if u.attempts > 0 then                -- it was in a claim whose worker died
    call('RPUSH', suspects_key(id), uid)
    enter_lane(id, 'suspects', owner, u.cost)
  else
    call('RPUSH', back_key(id), uid)
    call('HINCRBY', task_key(id), 'back', 1)
    enter_lane(id, lane, owner, u.cost)
  end
end
local function split(id, uid, u, lane, owner)       -- into single items, each a suspect
  call('HDEL', units_key(id), 'u' .. uid)
  local left = u.cost
  for i = 0, u.items - 1 do
    local cost = i == u.items - 1 and left or math.floor(u.cost / u.items)
    left = left - cost
    give_back(id, 's' .. int(u.first + i), {first = u.first + i, items = 1, cost = cost, attempts = 1, root = u.root,
      offset = u.offset + i, token = '-'}, lane, owner)
  end
end
-- A unit leased under `token` was not committed. released: nobody's fault, the attempt is refunded.
local function unit_returns(id, uid, token, released)
  local raw = call('HGET', units_key(id), 'u' .. uid)
  if not raw then return end
  local u = unit_record(raw)
  if u.token ~= token then return end
  local t = call('HMGET', task_key(id), 'lane', 'owner')
  u.token = '-'
  if released then
    u.attempts = u.attempts - 1
    give_back(id, uid, u, t[1], t[2])
  elseif u.items > 1 then
    split(id, uid, u, t[1], t[2])
  elseif u.attempts > DEATHS_ALONE then -- the first attempt was in company
    call('HSET', result_key(id), 'x' .. int(u.first), string.format(LOST, int(u.first)))
    call('HDEL', units_key(id), 'u' .. uid)
    settle(id, 0, 1, u.cost, 0)
    count('failed_items', 1)
  else
    give_back(id, uid, u, t[1], t[2])
  end
end
local function drop_claim(token, released)          -- everything the claim still holds; O(its units)
  local refs = call('SMEMBERS', claim_key(token))
  table.sort(refs)                                  -- the same order whichever server this is
  for _, ref in ipairs(refs) do
    local id, uid = string.match(ref, '^(%S+) (%S+)$')
    unit_returns(id, uid, token, released)
  end
  call('DEL', claim_key(token))
  call('ZREM', LEASES, token)
  settled()
end
-- The worker of this claim died, or hangs. A suspect runs alone: what its worker held beside it stood still, which is
-- nobody's fault, and comes back as it was. O(number of claims).
local function lose_claim(token)
  local worker, beside, alone = string.match(token, '^[^/]*'), {}, false
  local function of_suspect(other)
    if call('SCARD', claim_key(other)) ~= 1 then return false end
    local id, uid = string.match(call('SMEMBERS', claim_key(other))[1], '^(%S+) (%S+)$')
    local raw = call('HGET', units_key(id), 'u' .. uid)
    return raw and unit_record(raw).attempts > 1
  end
  for _, other in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    if string.match(other, '^[^/]*') == worker then
      if of_suspect(other) then alone = true else beside[#beside + 1] = other end
    end
  end
  if alone then
    for _, other in ipairs(beside) do drop_claim(other, true) end
  end
  if not call('ZSCORE', LEASES, token) then return end  -- it stood still itself
  drop_claim(token, false)
  count('lost_leases', 1)
end
-- Leases are for those who live, and while Redis or its clock stood still nobody could renew one: what has passed
-- since somebody looked, beyond what may pass between two looks, does not count. Where nobody looked because nobody
-- was there, work comes back a lease later than it might.
local function look_at_clock(note)
  if call('EXISTS', LEASES) == 0 then
    call('HDEL', S, 'last')
    return
  end
  local last = tonumber(call('HGET', S, 'last') or '')
  local gap = last and NOW - last or 0
  if gap > STILL_MS then
    local leases = call('ZRANGE', LEASES, 0, -1, 'WITHSCORES')
    for i = 1, #leases, 2 do call('ZADD', LEASES, int(tonumber(leases[i + 1]) + gap - STILL_MS), leases[i]) end
  end
  if note or gap > STILL_MS then call('HSET', S, 'last', int(NOW)) end
end
local function reap(limit)              -- expired leases; also heals a clock that went back
  look_at_clock()
  local far = call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')
  if far[2] and tonumber(far[2]) > NOW + MAX_LEASE_MS then call('ZADD', LEASES, int(NOW + 30000), far[1]) end
  local due = call('ZRANGEBYSCORE', LEASES, '-inf', int(NOW), 'LIMIT', 0, limit)
  for _, token in ipairs(due) do lose_claim(token) end
end

-- ---- workers ------------------------------------------------------------------------------------------------------

local function prune_workers()          -- the rate is the sum over live workers; the last known one is kept
  call('ZREMRANGEBYSCORE', LINGER, '-inf', int(NOW))  -- those that died while they waited
  for _, worker in ipairs(call('ZRANGEBYSCORE', WORKERS, '-inf', int(NOW))) do
    call('ZREM', WORKERS, worker)
    call('HDEL', RATES, worker)
  end
  local sum = 0
  for _, rate in ipairs(call('HVALS', RATES)) do sum = sum + tonumber(rate) end
  if sum > 0 then call('HSET', S, 'rate', int(math.max(sum, 1))) end
end

-- ---- files: what an owner has stored ------------------------------------------------------------------------------

local function account_of(owner)
  return {files = R .. ':files:' .. owner, ends = R .. ':fileends:' .. owner, bytes = R .. ':filebytes:' .. owner,
    uploads = R .. ':uploads:' .. owner}
end
local LOOKED_AT_FILES = 1000
local function expired_files(account)   -- entries of files whose records are gone by now, and their bytes
  local gone, bytes = call('ZRANGEBYSCORE', account.ends, '-inf', int(NOW), 'LIMIT', 0, LOOKED_AT_FILES), 0
  for _, entry in ipairs(gone) do bytes = bytes + tonumber(string.match(entry, ' (%d+)$')) end
  return gone, bytes
end
local function stored_files(account)    -- bytes, number, and the entries that have expired
  local gone, freed = expired_files(account)
  return tonumber(call('GET', account.bytes) or 0) - freed, call('ZCARD', account.files) - #gone, gone
end
local function forget_file(account, entry)  -- "file size"
  local file, size = string.match(entry, '^(%S+) (%d+)$')
  if call('ZREM', account.files, file) == 1 then call('DECRBY', account.bytes, size) end
  call('ZREM', account.ends, entry)
end
-- What `refuses(bytes, files)` says, and the entries that have expired. Where more have than one look counts, they are
-- forgotten before anybody is refused because of them; in so many rounds, and by the next who asks.
local function judged(account, refuses)
  local bytes, files, gone, refused
  for _ = 1, 5 do
    bytes, files, gone = stored_files(account)
    refused = refuses(bytes, files)
    if not refused or #gone < LOOKED_AT_FILES then break end
    for _, entry in ipairs(gone) do forget_file(account, entry) end
    gone = {}
  end
  return refused, gone
end
-- The reply for an owner who has stored more than this, and so makes nothing new; nil: there is room. -1: no limit.
-- beside: bytes that are in no file.
local function over_quota(owner, max_bytes, max_files, beside)
  local refused = judged(account_of(owner), function(bytes, files)
    bytes = bytes + (beside or 0)
    if max_bytes >= 0 and bytes > max_bytes or max_files >= 0 and files > max_files then
      return {'quota', int(bytes), int(files)}
    end
  end)
  return refused
end

-- ---- records: batches and ingestions, which one kind of script stores ----------------------------------------------

-- The first write of a script that stores something: HSET of these fields. Redis refuses it when memory is full, before
-- anything has changed. Returns nil, or the error to be replied, which begins with "OOM" when memory is full.
local function store_first(key, ...)
  local stored = redis.pcall('HSET', key, ...)
  if type(stored) == 'table' and stored.err then
    return redis.error_reply((string.find(stored.err, 'OOM', 1, true) and 'OOM ' or 'ERR ') .. stored.err)
  end
end
-- The reply for a request that was made before, under this alias or with this id; nil: it is new.
local function repeated_record(kind, id, owner, alias, digest)
  if alias ~= '' then
    local alias_at = R .. ':' .. kind .. '-alias:' .. owner .. ':' .. alias
    local other, of = string.match(call('GET', alias_at) or '', '^(%S+) (%S+)$')
    if other and call('EXISTS', R .. ':' .. kind .. ':' .. other) == 1 then
      if of ~= digest then return {'conflict'} end
      return {'joined', other}
    end
  end
  if call('EXISTS', R .. ':' .. kind .. ':' .. id) == 1 then return {'ok', id} end -- this very call, again
end
-- Stores the fields given and those from ARGV[rest] on, enters the record in its owner's list, then sets the alias, for
-- life_ms (nil: without end). Returns as `store_first`.
local function store_record(kind, list, id, owner, alias, digest, life_ms, rest, ...)
  local key = R .. ':' .. kind .. ':' .. id
  local refused = store_first(key, ...)
  if refused then return refused end
  for i = rest, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
  call('ZADD', list, 0, id)
  -- Records expire silently. One comes and two are looked at, so the list cannot fill up with those that are gone.
  for _, other in ipairs(call('ZRANDMEMBER', list, -2)) do
    if call('EXISTS', R .. ':' .. kind .. ':' .. other) == 0 then call('ZREM', list, other) end
  end
  if alias == '' then return end
  call('HSET', key, 'alias', alias)
  local alias_at = R .. ':' .. kind .. '-alias:' .. owner .. ':' .. alias
  local entry = id .. ' ' .. digest
  if life_ms then call('SET', alias_at, entry, 'PX', int(life_ms)) else call('SET', alias_at, entry) end
end

-- ---- ingestions ---------------------------------------------------------------------------------------------------

-- Changes one if it is as expected; all or nothing. Returns whether it did, and its status now or ''.
-- m: expected are states [status...], equal [[field, value]...], stages [[page, stage or '']...], begin [entry...] (the
-- first ones that wait). To be done: to (status or ''), set [[field, value]...], unset [field...],
-- add [[field, number]...], put [[page, JSON]...], drop [page...], wait [entry...], close [[page, JSON]...]
local function move_ingestion(id, m)
  local key, waiting = R .. ':ingestion:' .. id, R .. ':ingestion-waiting:' .. id
  local pages, closed = R .. ':ingestion-pages:' .. id, R .. ':ingestion-closed:' .. id
  local f = call('HMGET', key, 'status', 'ttl', 'owner', 'alias')
  local TERMINAL = {completed = true, failed = true, cancelled = true}

  local function fits()
    local ok = false
    for _, state in ipairs(m.states) do ok = ok or state == f[1] end
    if not ok then return false end
    for _, pair in ipairs(m.equal) do      -- a number that is absent is 0
      local value = call('HGET', key, pair[1]) or ''
      if value ~= pair[2] and not ((value == '' or value == '0') and (pair[2] == '' or pair[2] == '0')) then
        return false
      end
    end
    for _, pair in ipairs(m.stages) do
      local page = call('HGET', pages, pair[1])
      if (page and cjson.decode(page).stage or '') ~= pair[2] then return false end
    end
    for i, entry in ipairs(m.begin) do
      if call('LINDEX', waiting, i - 1) ~= entry then return false end
    end
    return true
  end

  local function keep(alias_at)           -- open again
    for _, name in ipairs({key, closed, waiting}) do call('PERSIST', name) end
    if alias_at then call('PERSIST', alias_at) end
    call('PERSIST', R .. ':ingestions:' .. f[3])
    call('SADD', R .. ':ingesting:' .. f[3], id)
    call('SADD', R .. ':open-ingestions', id)
  end
  local function let_go(alias_at)         -- its list lives as long as the one that ends last
    call('PEXPIRE', key, f[2])
    call('PEXPIRE', closed, f[2])
    call('PEXPIRE', pages, f[2])
    if call('HGET', key, 'resumable') then call('PEXPIRE', waiting, f[2]) else call('DEL', waiting) end
    if alias_at then call('PEXPIRE', alias_at, f[2]) end
    call('SREM', R .. ':ingesting:' .. f[3], id)
    if call('EXISTS', R .. ':ingesting:' .. f[3]) == 0 then call('PEXPIRE', R .. ':ingestions:' .. f[3], f[2]) end
  end

  if not fits() then return false, f[1] or '' end
  for _, pair in ipairs(m.set) do call('HSET', key, pair[1], pair[2]) end
  for _, name in ipairs(m.unset) do call('HDEL', key, name) end
  for _, pair in ipairs(m.add) do call('HINCRBY', key, pair[1], pair[2]) end
  for _, pair in ipairs(m.put) do call('HSET', pages, pair[1], pair[2]) end
  for _, page in ipairs(m.drop) do call('HDEL', pages, page) end
  for _ = 1, #m.begin do call('LPOP', waiting) end
  for _, entry in ipairs(m.wait) do call('RPUSH', waiting, entry) end
  for _, pair in ipairs(m.close) do call('HSET', closed, pair[1], pair[2]) end
  if m.to == '' then return true, f[1] end
  call('HSET', key, 'status', m.to, 't_' .. m.to, int(NOW))
  local alias_at = f[4] and R .. ':ingestion-alias:' .. f[3] .. ':' .. f[4]
  if alias_at and string.match(call('GET', alias_at) or '', '^%S+') ~= id then alias_at = nil end
  if TERMINAL[m.to] then let_go(alias_at) elseif TERMINAL[f[1]] then keep(alias_at) end
  local told = TERMINAL[m.to] and ended_ids or changed_ids
  told[#told + 1] = id
  wake_steps()
  return true, m.to
end
