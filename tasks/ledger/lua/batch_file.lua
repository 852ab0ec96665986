-- Gives a file that a batch made to its owner. Afterwards the owner may delete it, and it must not come back.
-- own: batch, then as RECORD_CREATE; reply: likewise, or {'over'}: the batch writes no more files
-- uses: records
local status = call('HGET', record_key('batch', ARGV[OWN]), 'status')
if status ~= 'finalizing' and status ~= 'cancelling' then return {'over'} end
local reply = create_record(OWN + 1)
save_sums()
return reply
