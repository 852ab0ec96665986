-- An ingestion has ended and nothing is left to do for it. One that was deleted goes, if the caller knew of that.
-- own: id deleted   reply: 1 it was at its end
-- uses: job_records
allowed_when_full()
local id, key = ARGV[OWN], record_key('ingestion', ARGV[OWN])
local f = call('HMGET', key, 'status', 'deleted_at')
if f[1] and f[1] ~= 'completed' and f[1] ~= 'failed' and f[1] ~= 'cancelled' then return 0 end -- tried again
call('UNLINK', R .. ':ingestion-pages:' .. id)
if f[1] and not f[2] then change_place('ingestion', id, -1, not_open)
elseif ARGV[OWN + 1] == '1' then remove_record('ingestion', id) end  -- else there is more to remove
save_sums()
return 1
