-- Moves a batch from one of some states to another, and sets fields with it. It may stay where it is.
-- own: id to terminal number_of_states state..., then field value...   reply: {1 moved, the status now or ''}
-- uses: job_records
allowed_when_full()
local id, to, terminal, states = unpack(ARGV, OWN, OWN + 3)
local key, rest = record_key('batch', id), OWN + 4 + states
local f = call('HMGET', key, 'status', 'ttl', 'owner')
local fits = false
for i = OWN + 4, rest - 1 do fits = fits or f[1] == ARGV[i] end
if not fits then return {0, f[1] or ''} end
if f[1] ~= to then call('HSET', key, 'status', to, 't_' .. to, int(NOW)) end
for i = rest, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
if terminal == '1' then
  change_place('batch', id, tonumber(f[2]), function(r) r.counts = {} end)
  litter(folder_of('batch', id) .. ' ' .. f[3], NOW)
  if f[1] ~= to then count_of_documents('batches_' .. to, 1) end
end
if f[1] ~= to then wake_steps() end
return {1, to}
