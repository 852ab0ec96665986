-- The id of the storage that this Redis belongs to.   own: id ('': only look) replace (1: also one that is there)
-- reply: the id that is there now, '' for none
allowed_when_full()
local key = R .. ':storage'
if ARGV[OWN] ~= '' and (ARGV[OWN + 1] == '1' or call('EXISTS', key) == 0) then call('SET', key, ARGV[OWN]) end
return call('GET', key) or ''
