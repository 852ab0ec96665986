-- Where open tasks stand: what is served before them, and who serves it. Changes nothing.
-- own: number of queues, queue..., then tasks, of these queues or of others
-- reply: {now, {name, live workers, rate or '', since when none lives or ''} of each queue, then of each task {} where it
--   is not open, else {queue, lane, state, cost, items left, cost of the lane, cost and tasks of its owner, other owners,
--   cost of the online lane, tasks that take a turn before its next one, 1 if there may be more of these}}
-- -1 tasks before it: none of its units is ready, so all that is left of it has been handed out.
-- Cost: what is read of a lane is read once, LOOK owners of it; of a task two hashes and its ranks.
local LOOK = 64
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
local function see_lane(lane)           -- its first owners with how many tasks each has in line
  local seen = lanes[lane_key(lane)]
  if seen then return seen end
  local s = call('HMGET', S, 'cost_' .. lane, 'owners_' .. lane, 'cost_online')
  seen = {line = {}, all = tonumber(s[1] or 0), owners = tonumber(s[2] or 0), online = tonumber(s[3] or 0)}
  for _, owner in ipairs(call('ZRANGE', lane_key(lane), 0, LOOK - 1)) do
    seen.line[#seen.line + 1] = {name = owner, tasks = call('ZCARD', owner_key(lane, owner))}
  end
  seen.more = call('ZCARD', lane_key(lane)) > LOOK
  lanes[lane_key(lane)] = seen
  return seen
end
local function see_owner(lane, owner)
  local key = owner_key(lane, owner)
  owners[key] = owners[key] or call('HMGET', S, 'cost_' .. lane .. ':' .. owner, 'tasks_' .. lane .. ':' .. owner)
  return owners[key]
end
-- Owners take turns, and so do the tasks of one. Before the turn of a task with n others of its owner before it, each
-- other owner has n turns, and those before its owner in the lane one more. A turn is of one task. Owners that were not
-- looked at come behind those that were. Returns how many, and 1 if these owners have turns too.
local function before(id, lane, owner, seen)
  local rank = call('ZRANK', owner_key(lane, owner), id)
  if not rank then return -1, 0 end
  local n, turns = rank, rank + 1
  for _, other in ipairs(seen.line) do
    if other.name == owner then turns = rank
    else n = n + math.min(other.tasks, turns) end
  end
  return n, (seen.more and turns > 0) and 1 or 0
end

local out = {int(NOW), queues[1]}
local first = FIRST + 2 + tonumber(arg(1))
for i = FIRST + 2, first - 1 do see_queue(ARGV[i]) end
for i = first, #ARGV do
  local id = ARGV[i]
  local f = call('HMGET', task_key(id), 'q', 'lane', 'owner', 'state', 'cost', 'total', 'completed', 'failed')
  local row = {}
  if f[4] and OPEN[f[4]] then
    see_queue(f[1])
    local lane, owner = see_lane(f[2]), see_owner(f[2], f[3])
    local others = lane.owners - (tonumber(owner[2] or 0) > 0 and 1 or 0)
    row = {f[1], f[2], f[4], tonumber(f[5]), f[6] - f[7] - f[8], lane.all, tonumber(owner[1] or 0),
      tonumber(owner[2] or 0), others, lane.online, before(id, f[2], f[3], lane)}
  end
  out[#out + 1] = row
end
return out
