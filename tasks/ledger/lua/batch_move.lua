-- Moves a batch from one of some states to another, and sets fields with it. It may stay where it is.
-- own: id to terminal number_of_states state..., then field value...   reply: {1 moved, the status now or ''}
-- uses: litter
allowed_when_full()
local id, to, states = arg(1), arg(2), tonumber(arg(4))
local key = R .. ':batch:' .. id
local f = call('HMGET', key, 'status', 'ttl', 'owner', 'alias')
local fits = false
for i = 5, 4 + states do fits = fits or f[1] == arg(i) end
if not fits then return {0, f[1] or ''} end
if f[1] ~= to then call('HSET', key, 'status', to, 't_' .. to, int(NOW)) end
for i = FIRST + 5 + states, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
if arg(3) == '1' then
  call('PEXPIRE', key, f[2])
  call('ZREM', R .. ':batches-open:' .. f[3], id)
  local list = R .. ':batches:' .. f[3]
  local left = call('PTTL', list)       -- one that ends late outlives what was foreseen
  if left >= 0 and left < tonumber(f[2]) then call('PEXPIRE', list, f[2]) end
  if f[4] then
    local alias_at = R .. ':batch-alias:' .. f[3] .. ':' .. f[4]
    if string.match(call('GET', alias_at) or '', '^%S+') == id then call('PEXPIRE', alias_at, f[2]) end
  end
  litter('batches/' .. id .. '/ ' .. f[3], NOW)
  if f[1] ~= to then count_of_documents('batches_' .. to, 1) end
end
if f[1] ~= to then wake_steps() end
return {1, to}
