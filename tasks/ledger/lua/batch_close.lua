-- A batch has ended and nothing is left to do for it. One that was deleted goes, if the caller knew of that, after the sweep.
-- own: id deleted   reply: 1
-- uses: job_records
allowed_when_full()
local id, deleted = ARGV[OWN], call('HGET', record_key('batch', ARGV[OWN]), 'deleted_at')
if not deleted and call('EXISTS', record_key('batch', id)) == 1 then change_place('batch', id, -1, not_open)
elseif ARGV[OWN + 1] == '1' then       -- else there may be more to remove
  -- The sweep learns from the record which files the batch was writing.
  local owner = call('HGET', record_key('batch', id), 'owner')
  if owner and not call('ZSCORE', R .. ':litter', folder_of('batch', id) .. ' ' .. owner) then remove_record('batch', id) end
end
save_sums()
return 1
