-- Removes a record.   own: kind id   reply: its JSON, '' where there was none
-- uses: records
allowed_when_full()
local text = remove_record(ARGV[OWN], ARGV[OWN + 1])
save_sums()
return text or ''
