-- Cancels a task if it is open and removes every trace of it.   own: id   reply: 1 there was one
allowed_when_full()
local id = arg(1)
local f = call('HMGET', task_key(id), 'state', 'owner', 'alias')
if not f[1] then return 0 end
end_task(id, 'cancelled')
call('UNLINK', task_key(id), result_key(id), meta_key(id))
if f[3] then call('UNLINK', alias_key(f[2], f[3])) end
announce()
return 1
