-- Cancels tasks that are open and removes every trace of them.   own: id...   reply: how many there were
-- uses: accounts ending
allowed_when_full()
local forgotten = 0
for i = FIRST + 1, #ARGV do
  local id = ARGV[i]
  if state_of(id) then
    local f = call('HMGET', task_key(id), 'owner', 'alias')
    local alias = f[2] and alias_of(id, f[1], f[2])
    end_task(id, 'cancelled')
    local held = call('HMGET', task_key(id), 'held', 'finished', 'ttl')
    if tonumber(held[1]) > 0 then drop_results((results_entry(f[1], held[2], held[3])), tonumber(held[1])) end
    call('ZREM', tasks_key(f[1]), id)
    call('UNLINK', task_key(id), result_key(id), meta_key(id))
    if alias then call('UNLINK', alias) end
    forgotten = forgotten + 1
  end
end
announce()
return forgotten
