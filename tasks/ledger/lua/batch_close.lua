-- A batch has ended and nothing is left to do for it. One that was deleted goes, if the caller knew of that.
-- own: id deleted   reply: 1
-- uses: job_records
allowed_when_full()
local id, deleted = ARGV[OWN], call('HGET', record_key('batch', ARGV[OWN]), 'deleted_at')
if not deleted and call('EXISTS', record_key('batch', id)) == 1 then change_place('batch', id, -1, not_open)
elseif ARGV[OWN + 1] == '1' then remove_record('batch', id) end  -- else there may be more to remove
save_sums()
return 1
