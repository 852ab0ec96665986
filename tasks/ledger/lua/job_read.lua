-- Reads jobs, of one moment.   own: kind ids...   reply: {now, hash of each}
local out = {string.format('%.0f', NOW)}
for i = OWN + 1, #ARGV do out[#out + 1] = call('HGETALL', R .. ':' .. ARGV[OWN] .. ':' .. ARGV[i]) end
return out
