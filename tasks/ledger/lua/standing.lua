-- Where open tasks stand: how much work is before them, and who serves it. Changes nothing.
-- own: number of queues, queue..., then tasks, of these queues or of others
-- reply: {now, {name, live workers, rate or '', since when none lives or ''} of each queue, then of each task {} where it
--   is not open, else {queue, lane, state, cost, cost of the lane, cost and tasks of its owner, other owners, cost of the online
--   lane, when a worker of it died for the last time or 0}}
-- Cost: what is read of a lane or an owner is read once; of a task one hash.
local queues, lanes, owners = {{}, {}}, {}, {}

local function see_queue(name)
  use_queue(name)
  if queues[2][name] then return end
  local s = call('HMGET', S, 'rate', 'absent')
  queues[2][name] = true
  local live = call('ZCOUNT', WORKERS, '(' .. int(NOW), '+inf')
  local died = live == 0 and call('ZREVRANGE', WORKERS, 0, 0, 'WITHSCORES')[2]  -- not noted in `absent` yet
  queues[1][#queues[1] + 1] = {name, live, s[1] or '', died and int(tonumber(died)) or s[2] or ''}
end
local function see_lane(lane)           -- cost of all tasks, number of owners, cost of the online lane
  local key = lane_key(lane)
  lanes[key] = lanes[key] or call('HMGET', S, 'cost_' .. lane, 'owners_' .. lane, 'cost_online')
  return lanes[key]
end
local function see_owner(lane, owner)
  local key = owner_key(lane, owner)
  owners[key] = owners[key] or call('HMGET', S, 'cost_' .. lane .. ':' .. owner, 'tasks_' .. lane .. ':' .. owner)
  return owners[key]
end

local out = {int(NOW), queues[1]}
local first = FIRST + 2 + tonumber(arg(1))
for i = FIRST + 2, first - 1 do see_queue(ARGV[i]) end
for i = first, #ARGV do
  local id = ARGV[i]
  local f = call('HMGET', task_key(id), 'q', 'lane', 'owner', 'state', 'cost', 'died')
  local row = {}
  if f[4] and OPEN[f[4]] then
    see_queue(f[1])
    local lane, owner = see_lane(f[2]), see_owner(f[2], f[3])
    local others = tonumber(lane[2] or 0) - (tonumber(owner[2] or 0) > 0 and 1 or 0)
    row = {f[1], f[2], f[4], tonumber(f[5]), tonumber(lane[1] or 0), tonumber(owner[1] or 0), tonumber(owner[2] or 0),
      others, tonumber(lane[3] or 0), tonumber(f[6] or 0)}
  end
  out[#out + 1] = row
end
return out
