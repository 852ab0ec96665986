-- Tasks that come in.
-- uses: fair_turns wake_worker
-- Arguments of one, from ARGV[at] on: how many there are, then these, then for each piece: items cost payload.
--   joins: an equal task may be joined. listed: in its owner's list. wakes: its end wakes who advances jobs. answer: the process
--   that waits for its result, or ''. vector: bytes to keep room for, an item. per_minute queued jobs: limits of the key, or ''.
local NAMED = 21
local function task_from(at)
  local n = tonumber(ARGV[at])
  local id, queue, lane, owner, deadline_in, ttl, options, meta, alias, digest, joins, listed, wakes, trace, answer, vector,
    max_s, max_memory, per_minute, queued, jobs = unpack(ARGV, at + 1, at + NAMED)
  -- Made at once, not field by field, which is slow.
  local t = {id = id, queue = queue, lane = lane, owner = owner, deadline_in = tonumber(deadline_in), ttl = ttl,
    options = options, meta = meta, alias = alias, digest = digest, joins = joins, listed = listed, wakes = wakes, trace = trace,
    answer = answer, vector = tonumber(vector), max_s = max_s, max_memory = max_memory, per_minute = per_minute,
    queued = queued, jobs = jobs, first_piece = at + NAMED + 1, last = at + n, pieces = (n - NAMED) / 3,
    total = 0, cost = 0, bytes = 0, full = false}
  for i = t.first_piece, t.last, 3 do
    t.total, t.cost, t.bytes = t.total + ARGV[i], t.cost + ARGV[i + 1], t.bytes + #ARGV[i + 2]
  end
  return t
end
local lines, wakes = {}, {}             -- gathered, and written by store_rest
-- write: redis.pcall, or call where nothing is refused any more. Returns the error of the first write, or nil.
local function store(n, write)
  local deadline = n.deadline_in > 0 and NOW + n.deadline_in or 0
  local t = {n.queue, n.lane, n.owner, 'queued', NOW, 0, 0, deadline, tonumber(n.ttl), n.total, n.pieces, 0, '', 0, 0, 0,
    n.cost, n.bytes, n.vector, #n.meta, n.options, n.alias, tonumber(n.listed), tonumber(n.wakes), n.answer, n.trace, '', 0, 0,
    0, 0}
  local fields, first, key = {'s', cmsgpack.pack(t)}, 0, task_key(n.id)
  local function put(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end
  if n.meta ~= '' then put('m', n.meta) end
  for i = 0, n.pieces - 1 do
    local at = n.first_piece + 3 * i
    put('u' .. i, string.format('%d %s %s 0 0 %d -', first, ARGV[at], ARGV[at + 1], #ARGV[at + 2]))
    put('d' .. i, ARGV[at + 2])
    first = first + ARGV[at]
    if #fields > 4000 or i == n.pieces - 1 then
      local stored = write('HSET', key, unpack(fields))
      if type(stored) == 'table' and stored.err then return stored.err end
      fields, write = {}, call
    end
  end
  tasks[n.id] = nil                     -- an alias of a forgotten task was perhaps looked up by this very id
  tally(t, 1)
  if n.listed == '1' then call('ZADD', R .. ':index:task:' .. n.owner, 0, n.id) end
  if deadline > 0 then call('ZADD', DUE, deadline, 'task:' .. n.id) end
  if n.alias ~= '' then                 -- of a task that somebody waits for it saves work and promises nothing
    local alias = R .. ':alias:' .. n.owner .. ':' .. n.alias
    if deadline > 0 and n.listed ~= '1' then call('SET', alias, n.id .. ' ' .. n.digest, 'PX', n.deadline_in + n.ttl)
    else call('SET', alias, n.id .. ' ' .. n.digest) end
  end
  local line = lane_key(t)
  lines[line] = lines[line] or {}
  local entries = lines[line]
  entries[#entries + 1], entries[#entries + 2] = tag_of(t, tonumber(ARGV[n.first_piece + 1])), n.id
  wakes[#wakes + 1] = n.queue
end
-- Returns the queues for which the caller must send a bell.
local function store_rest()
  for line, entries in pairs(lines) do call('ZADD', line, 'NX', unpack(entries)) end
  local bells, silent = {}, {}
  for _, name in ipairs(wakes) do       -- one stream for each task, as long as one lingers
    if not silent[name] and not wake_lingerer(name) then
      silent[name] = true
      if bell_due(name) == 1 then bells[#bells + 1] = name end
    end
  end
  save_sums()
  return bells
end
