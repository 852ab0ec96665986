-- Records of files.   own: id…   reply: the hash of each, empty where there is none
local records = {}
for i = FIRST + 1, #ARGV do records[#records + 1] = call('HGETALL', R .. ':file:' .. ARGV[i]) end
return records
