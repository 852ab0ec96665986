-- Records of files.   own: id…   reply: the hash of each, empty where there is none
local found = {}
for i = FIRST + 1, #ARGV do found[#found + 1] = call('HGETALL', R .. ':file:' .. ARGV[i]) end
return found
