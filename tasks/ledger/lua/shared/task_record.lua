-- Tasks. One hash each: s: the record below, packed (a field for each value takes 1 kB more, JSON three times the time);
-- m: metadata; u{piece}: "first items cost deaths offset bytes token", "-" for no token; d{piece}: its payload;
-- v{first}+{items}: an outcome; x{first}: errors as JSON. A piece has u and d, or v and x, never both.
-- A part of piece 3 that was lost is 3a, 3b, ...; a part of that 3aa. Their payload is that of 3, from item `offset` on.
-- An item of an ended task with neither outcome nor error was to be encoded when another model came.
-- The client reads these names and places here. A new one is added at the end and read as "absent is 0".
-- uses: owner_account
local IN_QUEUE, LANE, OWNER, STATE, CREATED, STARTED, FINISHED, DEADLINE, TTL = 1, 2, 3, 4, 5, 6, 7, 8, 9
local TOTAL, PIECES, NEXT, BACK, COMPLETED, FAILED, TOKENS = 10, 11, 12, 13, 14, 15, 16
local COST, BYTES, VECTOR, KEPT = 17, 18, 19, 20  -- left to encode, payload left, room for an item's vector, outcomes stored
local OPTIONS, ALIAS, LISTED, WAKES, ANSWER, TRACE, MADE_BY, SPLIT, UNWANTED = 21, 22, 23, 24, 25, 26, 27, 28, 29
local DEATHS, DIED = 30, 31             -- how often a worker of it died; when for the last time
local TASK_BYTES = 1024                 -- of keys and counts, beside payload and outcomes

local function task_key(id) return R .. ':task:' .. id end
local function lane_key(t) return R .. ':q:' .. t[IN_QUEUE] .. ':' .. t[LANE] end
local tasks = {}                        -- id -> {id, t, set, gone}: read once, written by save_task
local function task(id, ...)            -- false where there is none; and the values of more fields
  local x = tasks[id]
  if x and not ... then return x end
  local f = call('HMGET', task_key(id), 's', ...)
  if x == nil then
    x = f[1] and {id = id, t = cmsgpack.unpack(f[1]), set = {}, gone = {}}
    tasks[id] = x
  end
  return x, f[2], f[3]
end
local function put(x, field, value) local set = x.set; set[#set + 1], set[#set + 2] = field, value end
local function drop(x, name)            -- a piece that is done; the payload of a part is also that of others
  x.gone[#x.gone + 1] = 'u' .. name
  if not string.find(name, '%a') then x.gone[#x.gone + 1] = 'd' .. name end
end
local function save_task(x)             -- to be called when x.t has changed
  x.packed = cmsgpack.pack(x.t)
  call('HSET', task_key(x.id), 's', x.packed, unpack(x.set))
  if #x.gone > 0 then call('HDEL', task_key(x.id), unpack(x.gone)) end
  x.set, x.gone = {}, {}
end
local function piece(text)
  local first, items, cost, deaths, offset, bytes, token =
    string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  return token and {first = tonumber(first), items = tonumber(items), cost = tonumber(cost), deaths = tonumber(deaths),
    offset = tonumber(offset), bytes = tonumber(bytes), token = token}
end
local function piece_text(p)
  return string.format('%d %d %d %d %d %d %s', p.first, p.items, p.cost, p.deaths, p.offset, p.bytes, p.token)
end
local function purged(t) return account(t[OWNER], t[IN_QUEUE], t[LANE]).purged > 0 end

-- What a task stands for in the sums of its queue and of its owner. Whoever changes one takes it out (-1), and puts it in again.
local function tally(t, n)
  local a, cost, open = account(t[OWNER], t[IN_QUEUE], t[LANE])
  local is_open = OPEN[t[STATE]]
  local room = is_open and t[VECTOR] * (t[TOTAL] - t[COMPLETED] - t[FAILED]) or 0
  a.bytes = a.bytes + n * (TASK_BYTES + t[KEPT] + (is_open and t[BYTES] + room or 0))
  if not is_open then return end
  local q, lane = queue(t[IN_QUEUE]), t[LANE]
  a.jobs = a.jobs + n * t[LISTED]
  q.bytes, q.reserved = q.bytes + n * t[BYTES], q.reserved + n * room
  if t[UNWANTED] == 0 then              -- work that nobody waits for keeps nobody out
    a[cost], q['cost_' .. lane] = a[cost] + n * t[COST], q['cost_' .. lane] + n * t[COST]
  end
  if a[open] == (n > 0 and 0 or 1) then q['owners_' .. lane] = q['owners_' .. lane] + n end
  a[open], q['open_' .. lane] = a[open] + n, q['open_' .. lane] + n
end
