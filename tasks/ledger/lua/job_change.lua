-- One move of a job: its record, its pages, its tasks, files that it has made. All of it or nothing, and only after the change
-- that the caller has read.
-- own: kind id change as read, new change, JSON, for_ms (as of RECORD_CHANGE); how many open pages to put, open pages to drop, pages
--   that are done, tasks to forget, to cancel, files; JSON of counters to add; whether the driver is woken: more may be
--   possible now; limits of the account (shared/records.lua); then these: field JSON, number JSON, field, id, id, 10 arguments of `create_record`; then tasks
--   (shared/store_task.lua)
-- reply: {'ok', queues for which a bell is due...} | {'changed'}: another move was first, or it is gone
--   | {'full', name, what the account would come to}
-- uses: end_task store_task records
local PAGE_BYTES = 96                   -- beside its JSON
local kind, id, before, change, text, for_ms, puts, drops, closes, forgets, cancels, files, counters, wakes, limits =
  unpack(ARGV, OWN, OWN + 14)
local key, at = record_key(kind, id), OWN + 15
local f = call('HMGET', key, 's', 'weight', 'change')
if f[3] ~= before and f[3] ~= change then return {'changed'} end
allowed_when_full()
local was, bytes = cjson.decode(f[1]), f[2] + #text - #f[1]
local above = f[3] ~= change and above_limits(cjson.decode(text), was, limits)
if above then return above end
if wakes == '1' then call('PUBLISH', R .. ':jobs', 'job') end
if f[3] == change then return {'ok'} end  -- this very call, again
local function put(place, n)
  for _ = 1, n do
    local old = call('HSTRLEN', place, ARGV[at])
    bytes = bytes + #ARGV[at + 1] - old + (old == 0 and PAGE_BYTES or 0)
    call('HSET', place, ARGV[at], ARGV[at + 1])
    at = at + 2
  end
end
put(key, puts)
put(R .. ':' .. kind .. '-done:' .. id, closes)
for _ = 1, drops do
  bytes = bytes - call('HSTRLEN', key, ARGV[at]) - PAGE_BYTES
  call('HDEL', key, ARGV[at])
  at = at + 1
end
replace_record(kind, id, was, f[2], text, bytes, change, tonumber(for_ms))
for i = 1, forgets + cancels do
  local x = task(ARGV[at])
  if x and OPEN[x.t[STATE]] then end_task(x, 'cancelled') end
  if x and i <= tonumber(forgets) then forget(x, ARGV[at]) end
  at = at + 1
end
for name, n in pairs(cjson.decode(counters)) do count('@documents', name, n) end
announce()                              -- before new tasks: an id that is forgotten comes again
for _ = 1, files do
  create_record(at)
  at = at + 10
end
while ARGV[at] do
  local n = task_from(at)
  if account(n.owner, n.queue, n.lane).purged == 0 and call('EXISTS', task_key(n.id)) == 0 then store(n, call) end
  at = n.last + 1
end
local bells = store_rest()
table.insert(bells, 1, 'ok')
return bells
