-- Figures of all queues. Changes nothing, and is refused where nothing can be changed: such a Redis is of no use.
-- own: names of queues to include although no worker told of them
-- reply: {{bytes that Redis uses, its limit, open batches, open ingestions},
--   {name, model (JSON or ''), state (packed, or ''), totals (flat), leases,
--   {age in ms of the oldest waiting online task, of the oldest bulk task; -1: none}, {live worker (JSON)...},
--   {loading worker (JSON)...}, since when no worker lives (ms; 0: one does, or nobody knows)}...}
-- uses: task_record
local LOOK = 32                         -- tasks of a lane, so that the work does not grow with the backlog
-- For how long the oldest task has waited, of those next in line that have texts which nobody has claimed.
local function oldest(name, lane)
  local age = -1
  for _, id in ipairs(call('ZRANGE', R .. ':q:' .. name .. ':' .. lane, 0, LOOK - 1)) do
    local x = task(id)
    if x then age = math.max(age, NOW - x.t[CREATED]) end
  end
  return age
end
local function of_workers(key)          -- those that live, and since when the last one does not
  local live, entries = call('ZRANGEBYSCORE', key .. 'workers', '(' .. NOW, '+inf'), {}
  if live[1] then entries = call('HMGET', key .. 'entries', unpack(live)) end
  local last = not live[1] and call('ZREVRANGE', key .. 'workers', 0, 0, 'WITHSCORES')[2]
  return entries, last and tonumber(last) or false
end
local function of_loading(key)
  local entries, flat = {}, call('HGETALL', key .. 'loading')
  for i = 2, #flat, 2 do
    local ends, entry = string.match(flat[i], '^(%d+) (.*)$')
    if tonumber(ends) > NOW then entries[#entries + 1] = entry end
  end
  return entries
end
allowed_when_full()
local models, flat = {}, call('HGETALL', R .. ':models')
for i = 1, #flat, 2 do models[flat[i]] = flat[i + 1] end
for i = OWN, #ARGV do models[ARGV[i]] = models[ARGV[i]] or '' end
local memory = numbers(R .. ':memory')
local function of_open(kind) return call('ZCARD', R .. ':index:' .. kind .. ':@open') end
local out = {{memory.used, memory.limit, of_open('batch'), of_open('ingestion')}}
for name, model in pairs(models) do
  local key = R .. ':q:' .. name .. ':'
  local workers, died = of_workers(key)
  local absent = workers[1] and 0 or died or queue(name).absent
  out[#out + 1] = {name, model, call('GET', key .. 'state') or '', call('HGETALL', key .. 'counts'),
    call('ZCARD', key .. 'leases'), {oldest(name, 'online'), oldest(name, 'bulk')}, workers, of_loading(key), absent}
end
return out
