-- The sweep has done with an entry. While the record of the job is kept, it is looked at once more when that has gone: a
-- worker that was taken for dead may write until then.   own: entry record ('': a file) again_ms (0: it is deleted)   reply: 1 that was all
-- uses: litter
allowed_when_full()
local entry, due = arg(1), call('ZSCORE', R .. ':litter', arg(1))
if not due or tonumber(due) > NOW then return 0 end -- the job was tried again meanwhile, and perhaps has ended again
local left = tonumber(arg(3))
if left == 0 and arg(2) ~= '' then left = call('PTTL', R .. ':' .. arg(2)) end
if left > 0 then
  litter(entry, NOW + left)
  return 0
end
no_litter(entry)
return 1
