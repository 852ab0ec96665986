-- Removes a record.   own: kind id   reply: 1 it was there
-- uses: records
allowed_when_full()
local there = remove_record(ARGV[OWN], ARGV[OWN + 1])
save_sums()
return there and 1 or 0
