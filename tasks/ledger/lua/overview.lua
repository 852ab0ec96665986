-- All models.   own: names to include although no worker registered them
-- reply: {{bytes that Redis uses, its limit, bytes reserved, open batches, open ingestions},
--   {name, entry or '', state, leases, {oldest_online, oldest_bulk}, worker...}...}
-- uses: accounts
local OWNERS, TASKS = 8, 4  -- looked at per lane, so that the work does not grow with the backlog

-- For how long the oldest task has waited, of those next in line that have texts which nobody has claimed: the first ones
-- of the owners whose turn comes first. In milliseconds; -1: nothing waits.
local function oldest(lane)
  local age = -1
  for _, owner in ipairs(call('ZRANGE', lane_key(lane), 0, OWNERS - 1)) do
    for _, id in ipairs(call('ZRANGE', owner_key(lane, owner), 0, TASKS - 1)) do
      local created = call('HGET', task_key(id), 'created')
      if created then age = math.max(age, NOW - tonumber(created)) end
    end
  end
  return age
end

local entries = call('HGETALL', R .. ':models')
local models = {}
for i = 1, #entries, 2 do models[entries[i]] = entries[i + 1] end
for i = FIRST + 1, #ARGV do models[ARGV[i]] = models[ARGV[i]] or '' end
local used, limit = memory()
local out = {{used or 0, limit or 0, tonumber(call('GET', RESERVED) or 0), call('ZCARD', R .. ':index:batch:@open'),
  call('ZCARD', R .. ':index:ingestion:@open')}}
for name, entry in pairs(models) do
  use_queue(name)
  local row = {name, entry, call('HGETALL', S), call('ZCARD', LEASES), {oldest('online'), oldest('bulk')}}
  for _, worker in ipairs(call('ZRANGEBYSCORE', WORKERS, '(' .. int(NOW), '+inf')) do
    local worker_entry = call('GET', Q .. ':worker:' .. worker)
    if worker_entry then row[#row + 1] = worker_entry end
  end
  out[#out + 1] = row
end
return out
