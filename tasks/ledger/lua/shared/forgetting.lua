-- Forgetting a task: it is cancelled if it is open, and nothing of it is left.
-- uses: accounts ending
local function forget_task(id)          -- whether there was one; `use_queue` its own first
  if not state_of(id) then return false end
  local f = call('HMGET', task_key(id), 'owner', 'alias')
  local alias = f[2] and alias_of(id, f[1], f[2])
  end_task(id, 'cancelled')
  local held = call('HMGET', task_key(id), 'held', 'finished', 'ttl')
  if tonumber(held[1]) > 0 then drop_results((results_entry(f[1], held[2], held[3])), tonumber(held[1])) end
  call('ZREM', tasks_key(f[1]), id)
  call('UNLINK', task_key(id), result_key(id), meta_key(id))
  if alias then call('UNLINK', alias) end
  return true
end
