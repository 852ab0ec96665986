-- Work took more than the cost of its task said: its owner's turn comes later. The backlog does not change.
-- own: id cost (all that is to be charged for this task beyond its cost)   reply: 1 charged
allowed_when_full()
local id, cost = arg(1), tonumber(arg(2))
local t = call('HMGET', task_key(id), 'state', 'lane', 'owner', 'charged')
local more = cost - tonumber(t[4] or 0)
if not t[1] or not OPEN[t[1]] or more <= 0 then return 0 end
call('HSET', task_key(id), 'charged', int(cost))
call('HINCRBY', S, 'pass_' .. t[2] .. ':' .. t[3], int(more))
if call('ZSCORE', lane_key(t[2]), t[3]) then call('ZINCRBY', lane_key(t[2]), int(more), t[3]) end
return 1
