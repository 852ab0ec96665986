-- Removes a record.   own: kind id change ('': whatever was its last change)   reply: its JSON, '' where there was none
-- uses: records
local kind, id, change = unpack(ARGV, OWN, OWN + 2)
allowed_when_full()
if change ~= '' and call('HGET', record_key(kind, id), 'change') ~= change then return '' end
local text = remove_record(kind, id)
save_sums()
return text or ''
