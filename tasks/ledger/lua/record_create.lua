-- Stores a record, or finds the one that its alias names.   own, reply: as `create_record` of shared/records.lua
-- uses: records
local reply = create_record(OWN)
save_sums()
return reply
