-- Moves the latest moment at which anybody wants a synchronous task.   own: id for_ms shorten   reply: 1 moved or kept
allowed_when_full()
local id, at, shorten = arg(1), NOW + tonumber(arg(2)), arg(3) == '1'
local deadline = OPEN[state_of(id)] and tonumber(call('HGET', task_key(id), 'deadline') or '')
if not deadline then return 0 end
deadline = shorten and math.min(deadline, at) or math.max(deadline, at)
call('HSET', task_key(id), 'deadline', int(deadline))
call('ZADD', DEADLINES, int(deadline), id)
return 1
