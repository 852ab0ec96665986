-- Whether records have changed.   own: kind...
-- reply: now in ms, the name of the last change of any record of each kind, '' where there has never been one
local out = {NOW}
for i = OWN, #ARGV do out[#out + 1] = call('HGET', R .. ':changes', ARGV[i]) or '' end
return out
