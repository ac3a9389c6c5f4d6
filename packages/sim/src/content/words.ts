/** Words that answers are made of: common, short, lower-case ASCII. The shipped model has a token for each of them. */
export const commonWords: readonly string[] = `
able about above across act add after again age agree air all allow along also always among and animal answer any
appear apple area arm around arrive art as ask at autumn away baby back bad bag ball bank base be bear beat beautiful
because become bed been before began begin behind being believe bell below best better between big bird black blow blue
boat body bone book both bottom box boy branch bread break bridge bright bring broad brother brown build burn but buy by
call came can car care carry case cat catch cause cell center certain chair change check child choose circle city clean
clear climb clock close cloth cloud coast coat cold color come common complete consider contain control cook cool copy
corner correct cost could count country course cover cross crowd current cut dance dark day deal deep design did differ
dinner direct do doctor does dog door down draw dream dress drink drive drop dry during each early earth ease east eat
edge egg eight else end engine enough enter equal even evening ever every example eye face fact fair fall family famous
far farm fast father feel feet few field fight figure fill final find fine finger finish fire first fish five flat floor
flow flower fly follow food foot for force forest form forward found four free fresh friend from front fruit full game
garden gave general gentle get girl give glad glass go gold gone good grass gray great green ground group grow guess had
hair half hand happen happy hard has hat have he head hear heart heat heavy held help her here high hill him his hold
home hope horse hot hour house how huge human hundred hurry ice idea if in inch island it join joy jump just keep kept
key kind king know lady lake land language large last late laugh law lay lead learn leave left leg less let letter level
lie life lift light like line list listen little live long look lost lot loud love low machine made main make man many
map mark matter may me mean measure meet men middle might mile milk mind minute miss money moon more morning most mother
mountain mouth move much music must my name near need never new next night nine no north nose not note nothing notice now
number ocean of off often oil old on once one only open or order other our out over own page paint pair paper part pass
path pay people perhaps picture piece place plain plan plane plant play point poor power press problem provide pull push
put question quick quiet race rain ran reach read ready real red rest rich ride right ring rise river road rock room
root rose round row rule run safe said sail salt same sand saw say school sea season seat second see seed seem send
sentence serve set seven several shade shape share she ship shop short should show side sign silver simple since sing
sister sit six size skin sky sleep slow small smile snow so soft soil some song soon sound south space speak spell spring
square stand star start stay step still stone stood stop store story straight stream street strong study such sugar
summer sun sure swim table tail take talk tall teach tell ten test than that the their them then there these they thin
thing think this those though thought thousand three through time tiny to together told too took top touch toward town
trade train travel tree trip true try turn two under unit until up us use usual valley very view village visit voice wait
walk wall want warm was wash watch water wave way we wear weather week weight well went were west what wheel when where
which while white who whole why wide wild will wind window winter wish with woman wonder wood word work world would write
year yellow yes yet you young your
`
  .trim()
  .split(/\s+/)
