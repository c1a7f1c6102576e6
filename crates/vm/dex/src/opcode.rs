//! All opcodes, as one table: number, name, format, registers, index and successors.
//!
//! Registers are written as the letters of the operands that name one: a small letter for one
//! register, a capital for a pair.

macro_rules! opcodes {
    ($($number:literal $name:ident $mnemonic:literal $format:ident $registers:literal
        $index:ident $flow:ident;)*) => {
        /// An operation. The number is the low byte of an instruction's first unit.
        #[allow(missing_docs, reason = "`mnemonic` is the documented name of each")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($name = $number,)*
        }

        /// The columns of the table.
        struct Shape {
            opcode: Opcode,
            mnemonic: &'static str,
            format: Format,
            registers: &'static str,
            index: IndexKind,
            flow: Flow,
        }

        static SHAPES: [Option<Shape>; 256] = {
            let mut shapes = [const { None }; 256];
            $(shapes[$number] = Some(Shape {
                opcode: Opcode::$name,
                mnemonic: $mnemonic,
                format: Format::$format,
                registers: $registers,
                index: IndexKind::$index,
                flow: Flow::$flow,
            });)*
            shapes
        };
    };
}

opcodes! {
    0x00 Nop "nop" F10x "" None Next;
    0x01 Move "move" F12x "ab" None Next;
    0x02 MoveFrom16 "move/from16" F22x "ab" None Next;
    0x03 Move16 "move/16" F32x "ab" None Next;
    0x04 MoveWide "move-wide" F12x "AB" None Next;
    0x05 MoveWideFrom16 "move-wide/from16" F22x "AB" None Next;
    0x06 MoveWide16 "move-wide/16" F32x "AB" None Next;
    0x07 MoveObject "move-object" F12x "ab" None Next;
    0x08 MoveObjectFrom16 "move-object/from16" F22x "ab" None Next;
    0x09 MoveObject16 "move-object/16" F32x "ab" None Next;
    0x0a MoveResult "move-result" F11x "a" None Next;
    0x0b MoveResultWide "move-result-wide" F11x "A" None Next;
    0x0c MoveResultObject "move-result-object" F11x "a" None Next;
    0x0d MoveException "move-exception" F11x "a" None Next;
    0x0e ReturnVoid "return-void" F10x "" None Return;
    0x0f Return "return" F11x "a" None Return;
    0x10 ReturnWide "return-wide" F11x "A" None Return;
    0x11 ReturnObject "return-object" F11x "a" None Return;
    0x12 Const4 "const/4" F11n "a" None Next;
    0x13 Const16 "const/16" F21s "a" None Next;
    0x14 Const "const" F31i "a" None Next;
    0x15 ConstHigh16 "const/high16" F21h "a" None Next;
    0x16 ConstWide16 "const-wide/16" F21s "A" None Next;
    0x17 ConstWide32 "const-wide/32" F31i "A" None Next;
    0x18 ConstWide "const-wide" F51l "A" None Next;
    0x19 ConstWideHigh16 "const-wide/high16" F21h "A" None Next;
    0x1a ConstString "const-string" F21c "a" String Throwing;
    0x1b ConstStringJumbo "const-string/jumbo" F31c "a" String Throwing;
    0x1c ConstClass "const-class" F21c "a" Type Throwing;
    0x1d MonitorEnter "monitor-enter" F11x "a" None Throwing;
    0x1e MonitorExit "monitor-exit" F11x "a" None Throwing;
    0x1f CheckCast "check-cast" F21c "a" Type Throwing;
    0x20 InstanceOf "instance-of" F22c "ab" Type Throwing;
    0x21 ArrayLength "array-length" F12x "ab" None Throwing;
    0x22 NewInstance "new-instance" F21c "a" Type Throwing;
    0x23 NewArray "new-array" F22c "ab" Type Throwing;
    0x24 FilledNewArray "filled-new-array" F35c "" Type Throwing;
    0x25 FilledNewArrayRange "filled-new-array/range" F3rc "" Type Throwing;
    0x26 FillArrayData "fill-array-data" F31t "a" None Throwing;
    0x27 Throw "throw" F11x "a" None Throw;
    0x28 Goto "goto" F10t "" None Goto;
    0x29 Goto16 "goto/16" F20t "" None Goto;
    0x2a Goto32 "goto/32" F30t "" None Goto;
    0x2b PackedSwitch "packed-switch" F31t "a" None Switch;
    0x2c SparseSwitch "sparse-switch" F31t "a" None Switch;
    0x2d CmplFloat "cmpl-float" F23x "abc" None Next;
    0x2e CmpgFloat "cmpg-float" F23x "abc" None Next;
    0x2f CmplDouble "cmpl-double" F23x "aBC" None Next;
    0x30 CmpgDouble "cmpg-double" F23x "aBC" None Next;
    0x31 CmpLong "cmp-long" F23x "aBC" None Next;
    0x32 IfEq "if-eq" F22t "ab" None If;
    0x33 IfNe "if-ne" F22t "ab" None If;
    0x34 IfLt "if-lt" F22t "ab" None If;
    0x35 IfGe "if-ge" F22t "ab" None If;
    0x36 IfGt "if-gt" F22t "ab" None If;
    0x37 IfLe "if-le" F22t "ab" None If;
    0x38 IfEqz "if-eqz" F21t "a" None If;
    0x39 IfNez "if-nez" F21t "a" None If;
    0x3a IfLtz "if-ltz" F21t "a" None If;
    0x3b IfGez "if-gez" F21t "a" None If;
    0x3c IfGtz "if-gtz" F21t "a" None If;
    0x3d IfLez "if-lez" F21t "a" None If;
    0x44 Aget "aget" F23x "abc" None Throwing;
    0x45 AgetWide "aget-wide" F23x "Abc" None Throwing;
    0x46 AgetObject "aget-object" F23x "abc" None Throwing;
    0x47 AgetBoolean "aget-boolean" F23x "abc" None Throwing;
    0x48 AgetByte "aget-byte" F23x "abc" None Throwing;
    0x49 AgetChar "aget-char" F23x "abc" None Throwing;
    0x4a AgetShort "aget-short" F23x "abc" None Throwing;
    0x4b Aput "aput" F23x "abc" None Throwing;
    0x4c AputWide "aput-wide" F23x "Abc" None Throwing;
    0x4d AputObject "aput-object" F23x "abc" None Throwing;
    0x4e AputBoolean "aput-boolean" F23x "abc" None Throwing;
    0x4f AputByte "aput-byte" F23x "abc" None Throwing;
    0x50 AputChar "aput-char" F23x "abc" None Throwing;
    0x51 AputShort "aput-short" F23x "abc" None Throwing;
    0x52 Iget "iget" F22c "ab" Field Throwing;
    0x53 IgetWide "iget-wide" F22c "Ab" Field Throwing;
    0x54 IgetObject "iget-object" F22c "ab" Field Throwing;
    0x55 IgetBoolean "iget-boolean" F22c "ab" Field Throwing;
    0x56 IgetByte "iget-byte" F22c "ab" Field Throwing;
    0x57 IgetChar "iget-char" F22c "ab" Field Throwing;
    0x58 IgetShort "iget-short" F22c "ab" Field Throwing;
    0x59 Iput "iput" F22c "ab" Field Throwing;
    0x5a IputWide "iput-wide" F22c "Ab" Field Throwing;
    0x5b IputObject "iput-object" F22c "ab" Field Throwing;
    0x5c IputBoolean "iput-boolean" F22c "ab" Field Throwing;
    0x5d IputByte "iput-byte" F22c "ab" Field Throwing;
    0x5e IputChar "iput-char" F22c "ab" Field Throwing;
    0x5f IputShort "iput-short" F22c "ab" Field Throwing;
    0x60 Sget "sget" F21c "a" Field Throwing;
    0x61 SgetWide "sget-wide" F21c "A" Field Throwing;
    0x62 SgetObject "sget-object" F21c "a" Field Throwing;
    0x63 SgetBoolean "sget-boolean" F21c "a" Field Throwing;
    0x64 SgetByte "sget-byte" F21c "a" Field Throwing;
    0x65 SgetChar "sget-char" F21c "a" Field Throwing;
    0x66 SgetShort "sget-short" F21c "a" Field Throwing;
    0x67 Sput "sput" F21c "a" Field Throwing;
    0x68 SputWide "sput-wide" F21c "A" Field Throwing;
    0x69 SputObject "sput-object" F21c "a" Field Throwing;
    0x6a SputBoolean "sput-boolean" F21c "a" Field Throwing;
    0x6b SputByte "sput-byte" F21c "a" Field Throwing;
    0x6c SputChar "sput-char" F21c "a" Field Throwing;
    0x6d SputShort "sput-short" F21c "a" Field Throwing;
    0x6e InvokeVirtual "invoke-virtual" F35c "" Method Throwing;
    0x6f InvokeSuper "invoke-super" F35c "" Method Throwing;
    0x70 InvokeDirect "invoke-direct" F35c "" Method Throwing;
    0x71 InvokeStatic "invoke-static" F35c "" Method Throwing;
    0x72 InvokeInterface "invoke-interface" F35c "" Method Throwing;
    0x74 InvokeVirtualRange "invoke-virtual/range" F3rc "" Method Throwing;
    0x75 InvokeSuperRange "invoke-super/range" F3rc "" Method Throwing;
    0x76 InvokeDirectRange "invoke-direct/range" F3rc "" Method Throwing;
    0x77 InvokeStaticRange "invoke-static/range" F3rc "" Method Throwing;
    0x78 InvokeInterfaceRange "invoke-interface/range" F3rc "" Method Throwing;
    0x7b NegInt "neg-int" F12x "ab" None Next;
    0x7c NotInt "not-int" F12x "ab" None Next;
    0x7d NegLong "neg-long" F12x "AB" None Next;
    0x7e NotLong "not-long" F12x "AB" None Next;
    0x7f NegFloat "neg-float" F12x "ab" None Next;
    0x80 NegDouble "neg-double" F12x "AB" None Next;
    0x81 IntToLong "int-to-long" F12x "Ab" None Next;
    0x82 IntToFloat "int-to-float" F12x "ab" None Next;
    0x83 IntToDouble "int-to-double" F12x "Ab" None Next;
    0x84 LongToInt "long-to-int" F12x "aB" None Next;
    0x85 LongToFloat "long-to-float" F12x "aB" None Next;
    0x86 LongToDouble "long-to-double" F12x "AB" None Next;
    0x87 FloatToInt "float-to-int" F12x "ab" None Next;
    0x88 FloatToLong "float-to-long" F12x "Ab" None Next;
    0x89 FloatToDouble "float-to-double" F12x "Ab" None Next;
    0x8a DoubleToInt "double-to-int" F12x "aB" None Next;
    0x8b DoubleToLong "double-to-long" F12x "AB" None Next;
    0x8c DoubleToFloat "double-to-float" F12x "aB" None Next;
    0x8d IntToByte "int-to-byte" F12x "ab" None Next;
    0x8e IntToChar "int-to-char" F12x "ab" None Next;
    0x8f IntToShort "int-to-short" F12x "ab" None Next;
    0x90 AddInt "add-int" F23x "abc" None Next;
    0x91 SubInt "sub-int" F23x "abc" None Next;
    0x92 MulInt "mul-int" F23x "abc" None Next;
    0x93 DivInt "div-int" F23x "abc" None Throwing;
    0x94 RemInt "rem-int" F23x "abc" None Throwing;
    0x95 AndInt "and-int" F23x "abc" None Next;
    0x96 OrInt "or-int" F23x "abc" None Next;
    0x97 XorInt "xor-int" F23x "abc" None Next;
    0x98 ShlInt "shl-int" F23x "abc" None Next;
    0x99 ShrInt "shr-int" F23x "abc" None Next;
    0x9a UshrInt "ushr-int" F23x "abc" None Next;
    0x9b AddLong "add-long" F23x "ABC" None Next;
    0x9c SubLong "sub-long" F23x "ABC" None Next;
    0x9d MulLong "mul-long" F23x "ABC" None Next;
    0x9e DivLong "div-long" F23x "ABC" None Throwing;
    0x9f RemLong "rem-long" F23x "ABC" None Throwing;
    0xa0 AndLong "and-long" F23x "ABC" None Next;
    0xa1 OrLong "or-long" F23x "ABC" None Next;
    0xa2 XorLong "xor-long" F23x "ABC" None Next;
    0xa3 ShlLong "shl-long" F23x "ABc" None Next;
    0xa4 ShrLong "shr-long" F23x "ABc" None Next;
    0xa5 UshrLong "ushr-long" F23x "ABc" None Next;
    0xa6 AddFloat "add-float" F23x "abc" None Next;
    0xa7 SubFloat "sub-float" F23x "abc" None Next;
    0xa8 MulFloat "mul-float" F23x "abc" None Next;
    0xa9 DivFloat "div-float" F23x "abc" None Next;
    0xaa RemFloat "rem-float" F23x "abc" None Next;
    0xab AddDouble "add-double" F23x "ABC" None Next;
    0xac SubDouble "sub-double" F23x "ABC" None Next;
    0xad MulDouble "mul-double" F23x "ABC" None Next;
    0xae DivDouble "div-double" F23x "ABC" None Next;
    0xaf RemDouble "rem-double" F23x "ABC" None Next;
    0xb0 AddInt2addr "add-int/2addr" F12x "ab" None Next;
    0xb1 SubInt2addr "sub-int/2addr" F12x "ab" None Next;
    0xb2 MulInt2addr "mul-int/2addr" F12x "ab" None Next;
    0xb3 DivInt2addr "div-int/2addr" F12x "ab" None Throwing;
    0xb4 RemInt2addr "rem-int/2addr" F12x "ab" None Throwing;
    0xb5 AndInt2addr "and-int/2addr" F12x "ab" None Next;
    0xb6 OrInt2addr "or-int/2addr" F12x "ab" None Next;
    0xb7 XorInt2addr "xor-int/2addr" F12x "ab" None Next;
    0xb8 ShlInt2addr "shl-int/2addr" F12x "ab" None Next;
    0xb9 ShrInt2addr "shr-int/2addr" F12x "ab" None Next;
    0xba UshrInt2addr "ushr-int/2addr" F12x "ab" None Next;
    0xbb AddLong2addr "add-long/2addr" F12x "AB" None Next;
    0xbc SubLong2addr "sub-long/2addr" F12x "AB" None Next;
    0xbd MulLong2addr "mul-long/2addr" F12x "AB" None Next;
    0xbe DivLong2addr "div-long/2addr" F12x "AB" None Throwing;
    0xbf RemLong2addr "rem-long/2addr" F12x "AB" None Throwing;
    0xc0 AndLong2addr "and-long/2addr" F12x "AB" None Next;
    0xc1 OrLong2addr "or-long/2addr" F12x "AB" None Next;
    0xc2 XorLong2addr "xor-long/2addr" F12x "AB" None Next;
    0xc3 ShlLong2addr "shl-long/2addr" F12x "Ab" None Next;
    0xc4 ShrLong2addr "shr-long/2addr" F12x "Ab" None Next;
    0xc5 UshrLong2addr "ushr-long/2addr" F12x "Ab" None Next;
    0xc6 AddFloat2addr "add-float/2addr" F12x "ab" None Next;
    0xc7 SubFloat2addr "sub-float/2addr" F12x "ab" None Next;
    0xc8 MulFloat2addr "mul-float/2addr" F12x "ab" None Next;
    0xc9 DivFloat2addr "div-float/2addr" F12x "ab" None Next;
    0xca RemFloat2addr "rem-float/2addr" F12x "ab" None Next;
    0xcb AddDouble2addr "add-double/2addr" F12x "AB" None Next;
    0xcc SubDouble2addr "sub-double/2addr" F12x "AB" None Next;
    0xcd MulDouble2addr "mul-double/2addr" F12x "AB" None Next;
    0xce DivDouble2addr "div-double/2addr" F12x "AB" None Next;
    0xcf RemDouble2addr "rem-double/2addr" F12x "AB" None Next;
    0xd0 AddIntLit16 "add-int/lit16" F22s "ab" None Next;
    0xd1 RsubInt "rsub-int" F22s "ab" None Next;
    0xd2 MulIntLit16 "mul-int/lit16" F22s "ab" None Next;
    0xd3 DivIntLit16 "div-int/lit16" F22s "ab" None Throwing;
    0xd4 RemIntLit16 "rem-int/lit16" F22s "ab" None Throwing;
    0xd5 AndIntLit16 "and-int/lit16" F22s "ab" None Next;
    0xd6 OrIntLit16 "or-int/lit16" F22s "ab" None Next;
    0xd7 XorIntLit16 "xor-int/lit16" F22s "ab" None Next;
    0xd8 AddIntLit8 "add-int/lit8" F22b "ab" None Next;
    0xd9 RsubIntLit8 "rsub-int/lit8" F22b "ab" None Next;
    0xda MulIntLit8 "mul-int/lit8" F22b "ab" None Next;
    0xdb DivIntLit8 "div-int/lit8" F22b "ab" None Throwing;
    0xdc RemIntLit8 "rem-int/lit8" F22b "ab" None Throwing;
    0xdd AndIntLit8 "and-int/lit8" F22b "ab" None Next;
    0xde OrIntLit8 "or-int/lit8" F22b "ab" None Next;
    0xdf XorIntLit8 "xor-int/lit8" F22b "ab" None Next;
    0xe0 ShlIntLit8 "shl-int/lit8" F22b "ab" None Next;
    0xe1 ShrIntLit8 "shr-int/lit8" F22b "ab" None Next;
    0xe2 UshrIntLit8 "ushr-int/lit8" F22b "ab" None Next;
    0xfa InvokePolymorphic "invoke-polymorphic" F45cc "" MethodAndProto Throwing;
    0xfb InvokePolymorphicRange "invoke-polymorphic/range" F4rcc "" MethodAndProto Throwing;
    0xfc InvokeCustom "invoke-custom" F35c "" CallSite Throwing;
    0xfd InvokeCustomRange "invoke-custom/range" F3rc "" CallSite Throwing;
    0xfe ConstMethodHandle "const-method-handle" F21c "a" MethodHandle Throwing;
    0xff ConstMethodType "const-method-type" F21c "a" Proto Throwing;
}

/// The layout of an instruction: the number of units, the number of registers, and the kind of
/// further operands, as the bytecode's documentation names them.
#[allow(missing_docs, reason = "the documented names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    F10x,
    F12x,
    F11n,
    F11x,
    F10t,
    F20t,
    F22x,
    F21t,
    F21s,
    F21h,
    F21c,
    F23x,
    F22b,
    F22t,
    F22s,
    F22c,
    F30t,
    F32x,
    F31i,
    F31t,
    F31c,
    F35c,
    F3rc,
    F45cc,
    F4rcc,
    F51l,
}

impl Format {
    /// The number of 16-bit units.
    pub fn n_units(self) -> usize {
        use Format::*;
        match self {
            F10x | F12x | F11n | F11x | F10t => 1,
            F20t | F22x | F21t | F21s | F21h | F21c | F23x | F22b | F22t | F22s | F22c => 2,
            F30t | F32x | F31i | F31t | F31c | F35c | F3rc => 3,
            F45cc | F4rcc => 4,
            F51l => 5,
        }
    }
}

/// The table that an instruction's index belongs to.
#[allow(missing_docs, reason = "each is a table of the file")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    None,
    String,
    Type,
    Field,
    Method,
    /// A method, and a prototype as second index.
    MethodAndProto,
    CallSite,
    MethodHandle,
    Proto,
}

/// The instructions that may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next one.
    Next,
    /// The next one, or a handler of an exception.
    Throwing,
    /// The target of the branch.
    Goto,
    /// The target of the branch, or the next one.
    If,
    /// A target in the payload, or the next one.
    Switch,
    /// None in this method but a handler: see [`Opcode::can_throw`].
    Return,
    /// A handler of the exception.
    Throw,
}

impl Opcode {
    /// The opcode of a number: `None` for the unused ones.
    pub fn from_number(number: u8) -> Option<Opcode> {
        SHAPES[usize::from(number)].as_ref().map(|shape| shape.opcode)
    }

    fn shape(self) -> &'static Shape {
        SHAPES[self as usize].as_ref().expect("an opcode has a shape")
    }

    /// The documented name: `add-int/2addr`.
    pub fn mnemonic(self) -> &'static str {
        self.shape().mnemonic
    }

    /// The layout of operands.
    pub fn format(self) -> Format {
        self.shape().format
    }

    /// The operands that name registers: `a`, `b`, `c` for one, `A`, `B`, `C` for a pair.
    /// Arguments of calls are apart.
    pub fn registers(self) -> &'static str {
        self.shape().registers
    }

    /// The table that the index belongs to.
    pub fn index_kind(self) -> IndexKind {
        self.shape().index
    }

    /// The instructions that may follow.
    pub fn flow(self) -> Flow {
        self.shape().flow
    }

    /// Whether an exception may come from the operation itself. It may from `return-object`, where
    /// the class of the method's result is missing.
    pub fn can_throw(self) -> bool {
        matches!(self.flow(), Flow::Throwing | Flow::Throw) || self == Opcode::ReturnObject
    }
}
