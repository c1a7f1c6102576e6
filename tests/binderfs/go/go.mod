module baton/tests/binderfs/go

go 1.22
