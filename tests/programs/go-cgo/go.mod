module baton/tests/programs/go-cgo

go 1.22
