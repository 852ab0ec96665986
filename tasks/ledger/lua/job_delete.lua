-- Deletes a batch or an ingestion that has ended. Its owner sees it no more from here on; a step removes what it has left
-- elsewhere, and then the record itself (`batch_close.lua`, `ingestion_close.lua`).
-- own: id kind   reply: {1 deleted, the status or ''}
-- uses: job_records
allowed_when_full()
local id, kind = ARGV[OWN], ARGV[OWN + 1]
local ENDED = {completed = true, failed = true, cancelled = true, expired = true}
local key = record_key(kind, id)
local f = call('HMGET', key, 'status', 'owner')
if not f[1] or not ENDED[f[1]] then return {0, f[1] or ''} end
call('HSET', key, 'deleted_at', int(NOW))
change_place(kind, id, -1, function(r) r.lists, r.alias = {'@open'}, '' end)
litter(folder_of(kind, id) .. ' ' .. f[2], NOW)
wake_steps()
return {1, f[1]}
