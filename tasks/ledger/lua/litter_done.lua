-- The sweep has done with an entry.   own: entry again_ms (0: what it names is deleted)   reply: 1 that was all
-- uses: litter
allowed_when_full()
local entry, again_ms = ARGV[OWN], tonumber(ARGV[OWN + 1])
local due = call('ZSCORE', R .. ':litter', entry)
if not due or tonumber(due) > NOW then return 0 end -- the job was tried again meanwhile, and perhaps has ended again
if again_ms == 0 then
  no_litter(entry)
  return 1
end
litter(entry, NOW + again_ms)
return 0
