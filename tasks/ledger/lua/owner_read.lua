-- What an owner has.   own: owner, names in its account...   reply: the number of each as text
-- uses: owner_account
local out, a = {}, numbers(R .. ':owner:' .. ARGV[OWN])
for i = OWN + 1, #ARGV do out[#out + 1] = string.format('%.0f', a[ARGV[i]]) end
return out
