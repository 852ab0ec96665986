-- Reads records.   own: kind id...   reply: {JSON, change} of each, both false where there is none
-- uses: records
local out = {}
for i = OWN + 1, #ARGV do out[#out + 1] = call('HMGET', record_key(ARGV[OWN], ARGV[i]), 's', 'change') end
return out
