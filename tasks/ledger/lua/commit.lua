-- Stores pieces' outcomes, each only if the token still holds it.
-- own: token, spent (what the work took beyond its cost), stream, ms that it would linger (0: no), pieces, then per piece:
--   id piece first items failed tokens extra outcome
-- reply: ms for which the stream is registered as lingering, as CLAIM would have done (0: it asks);
--   {per piece 1 committed, 2 was already, the same, 0 not yours any more};
--   {lane, ms from creation to end, of each task that completed now}
-- uses: end_task wake_worker
local MAX_ANSWER, MAX_ANSWERS = 16384, 262144  -- bytes of a result that travels with the news, and of all in a message
local token, spent, stream, linger_ms, pieces = unpack(ARGV, OWN, OWN + 4)
local FIRST, codes, took, touched, seen, named = OWN + 5, {}, {}, {}, {}, 0
allowed_when_full()

local function stored_before(p, id, field, outcome, first, extra)  -- the very same, and it is nobody's now
  if p then return false end
  if outcome ~= '' then return call('HGET', task_key(id), field) == outcome end
  return extra ~= '' and call('HGET', task_key(id), 'x' .. first) == extra
end
local function committed(i)
  local id, name, first, items, failed, tokens, extra, outcome = unpack(ARGV, i, i + 7)
  local x, text = task(id, 'u' .. name)
  if not x then return 0 end
  local p, ref, t, field = piece(text), id .. ' ' .. name, x.t, 'v' .. first .. '+' .. items
  if seen[ref] then return 2 end
  if not (p and p.token == token and OPEN[t[STATE]]) then
    return stored_before(p, id, field, outcome, first, extra) and 2 or 0
  end
  if purged(t) then
    end_task(x, 'cancelled')
    return 0
  end
  seen[ref] = true
  if not x.ok then
    tally(t, -1)
    x.ok, x.items, touched[#touched + 1] = 0, 0, x
  end
  x.ok, x.items = x.ok + items - failed, x.items + items
  t[COMPLETED], t[FAILED], t[TOKENS] = t[COMPLETED] + items - failed, t[FAILED] + failed, t[TOKENS] + tokens
  t[COST], t[BYTES], t[KEPT] = t[COST] - p.cost, t[BYTES] - p.bytes, t[KEPT] + #outcome + #extra
  if outcome ~= '' then put(x, field, outcome) end
  if extra ~= '' then put(x, 'x' .. first, extra) end
  drop(x, name)
  return 1
end
for n = 1, pieces do
  codes[n] = committed(FIRST + 8 * (n - 1))
  named = named + (codes[n] > 0 and 1 or 0)
end
local _, held = string.gsub(call('HGET', CLAIMS, token) or '', ' ', ' ')
if held == 2 * named - 1 then           -- all of it; of a claim in portions the worker gives back what is left
  call('HDEL', CLAIMS, token)
  call('ZREM', LEASES, token)
end

-- Somebody waits for the whole result: it is sent with the news, if it is small and all of it is here.
local boxes = {}
local function enclose(x, outcomes)
  local t = x.t
  if t[ANSWER] == '' or OPEN[t[STATE]] or x.items ~= t[TOTAL] or t[KEPT] > MAX_ANSWER then return end
  local box = boxes[t[ANSWER]] or {bytes = 0, lengths = {}, parts = {}, ids = {}}
  if box.bytes + t[KEPT] > MAX_ANSWERS then return end
  boxes[t[ANSWER]], box.bytes, box.ids[#box.ids + 1] = box, box.bytes + t[KEPT], x.id
  for _, part in ipairs({x.id, tostring(#outcomes), x.packed, unpack(outcomes)}) do
    box.lengths[#box.lengths + 1], box.parts[#box.parts + 1] = #part, part
  end
end
if spent ~= '0' and touched[1] then     -- such a claim is of one task
  local t = touched[1].t
  local a, _, _, debt = account(t[OWNER], t[IN_QUEUE], t[LANE])
  a[debt] = a[debt] + spent
end
for _, x in ipairs(touched) do
  local t, outcomes = x.t, x.set
  count(QUEUE, 'items_' .. t[LANE] .. '_completed', x.ok)
  count(QUEUE, 'items_' .. t[LANE] .. '_failed', x.items - x.ok)
  if t[COMPLETED] + t[FAILED] >= t[TOTAL] then
    finish(x, t[COMPLETED] > 0 and 'completed' or 'failed')
    if t[COMPLETED] > 0 then took[#took + 1], took[#took + 2] = t[LANE], NOW - t[CREATED] end
  elseif x.ok > 0 then
    t[MADE_BY] = queue(QUEUE).serves    -- what comes later must be of the same model
  end
  tally(t, 1)
  save_task(x)
  enclose(x, outcomes)
end
for process, box in pairs(boxes) do
  local message = table.concat(box.lengths, ' ') .. '\n' .. table.concat(box.parts)
  if call('PUBLISH', R .. ':answers:' .. process, message) > 0 then
    for _, id in ipairs(box.ids) do ended[id] = nil end  -- the others need not hear of it
  end
end
announce()
local wait = 0
if linger_ms ~= '0' and ready() == 0 then
  call('ZADD', LINGER, NOW + linger_ms + 250, stream)
  wait = tonumber(linger_ms)
end
save_sums()
return {wait, codes, took}
