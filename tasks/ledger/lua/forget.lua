-- Cancels a task if it is open and removes every trace of it.   own: id   reply: 1 there was one
allowed_when_full()
local id = arg(1)
if not state_of(id) then return 0 end
local f = call('HMGET', task_key(id), 'owner', 'alias')
local alias = f[2] and alias_of(id, f[1], f[2])
end_task(id, 'cancelled')
call('ZREM', tasks_key(f[1]), id)
call('UNLINK', task_key(id), result_key(id), meta_key(id))
if alias then call('UNLINK', alias) end
announce()
return 1
