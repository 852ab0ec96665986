-- The sweep has done with an entry. While the record of the job is kept, it is looked at once more when that has gone: a
-- worker that was taken for dead may write until then.   own: entry record ('': a file)   reply: 1 that was all
-- uses: litter
allowed_when_full()
local entry, due = arg(1), call('ZSCORE', R .. ':litter', arg(1))
if not due or tonumber(due) > NOW then return 0 end -- the job was tried again meanwhile, and perhaps has ended again
local left = arg(2) == '' and -2 or call('PTTL', R .. ':' .. arg(2))
if left > 0 then
  litter(entry, NOW + left)
  return 0
end
no_litter(entry)
return 1
