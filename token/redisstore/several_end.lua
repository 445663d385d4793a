end

local answers = {}
for i, key in ipairs(KEYS) do
  answers[i] = answer(key, (i - 1) * #ARGV / #KEYS)
end
return answers
