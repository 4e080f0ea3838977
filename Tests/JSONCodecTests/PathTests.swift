import TestKit
import Testing

@testable import JSONCodec

@Suite struct PathTests {
    static let sync = #"""
        {"next":"s1","rooms":{"join":{
          "!a:x":{"timeline":{"events":[
            {"type":"m.room.message","content":{"body":"one","m.relates_to":{"event_id":"$1"}}},
            {"type":"m.room.member","content":{"body":"not this"}},
            {"content":{"body":"nor this"}},
            {"type":"\u006d.room.message","content":{"body":"two"},"n":[[1,2],[3]]}]}},
          "!b:x":{"timeline":{"events":[{"type":"m.room.message","content":{"body":"three"}}]}},
          "!c:x":{"timeline":{"events":{}}}}}}
        """#

    static let found: [(path: String, values: [String])] = [
        ("next", ["\"s1\""]), ("$.next", ["\"s1\""]), ("missing", []), ("next.more", []), ("rooms[0]", []),
        (
            #"rooms.join.*.timeline.events[?type == "m.room.message"].content.body"#,
            [#""one""#, #""two""#, #""three""#]
        ),
        (
            #"rooms.join.*.timeline.events[?type!='m.room.message'].content.body"#, [#""not this""#, #""nor this""#]
        ),
        (
            #"rooms.join.*.timeline.events[?@.type].content.body"#,
            [
                #""one""#, #""not this""#, #""two""#, #""three""#,
            ]
        ),
        (#"rooms.join."!a:x".timeline.events[3].n[*][0]"#, ["1", "3"]),
        (#"rooms.join['!a:x'].timeline.events[ 3 ].n[0][*]"#, ["1", "2"]),
        (#"rooms.join.*.timeline.events[*].content."m.relates_to".event_id"#, [#""$1""#]),
        (
            #"rooms.join.*.timeline.events[?content.body == "two" && n][?type == "m.room.message"].content.body"#,
            [#""two""#]
        ),
        (#"[?next == "s1"].next"#, ["\"s1\""]), (#"[?next == "s2"].next"#, []), ("rooms.join[*]", []),
        (#"rooms.join.*.timeline.events.*"#, []),
    ]

    @Test func pathsFindTheirPlacesInOrder() throws {
        let document = try document(Self.sync)
        for (text, values) in Self.found {
            let places = try document.places(try JSONPath(text))
            #expect(places.map(document.written) == values, "\(text)")
            #expect(places.map { document.range($0).lowerBound }.isSorted)
        }
    }

    /// Some programs take names for one that differ in case, and fold two characters to ASCII letters.
    @Test(arguments: [
        ("task", #"{"task":1}"#, false), ("task", #"{"task":1,"tasks":2,"ask":3,"":4}"#, false),
        ("task", #"{"Task":1}"#, true), ("task", #"{"task":1,"TASK":2}"#, true), ("TASK", #"{"task":1}"#, true),
        ("task", #"{"\u0054ask":1,"task":2}"#, true), ("task", "{\"ta\u{17F}k\":1}", true),
        ("task", #"{"tas\u212a":1}"#, true), ("task", #"{"t\u00e4sk":1}"#, false),
        ("a.task", #"{"Task":1,"a":{"task":1}}"#, false), ("a.task", #"{"a":{"tasK":1}}"#, true),
        ("a.task", #"{"A":{},"a":{"task":1}}"#, true), ("a.task", #"{"a":[{"Task":1}]}"#, false),
        ("a[0].task", #"{"a":[{"Task":1}]}"#, true), ("a[1].task", #"{"a":[{"Task":1}]}"#, false),
        (#"$[?type == "a"]"#, #"{"type":"a","Type":"b"}"#, true),
        (#"$[?type == "a"]"#, #"{"type":"a","x":"b"}"#, false),
        (#"$[?a.type && b]"#, #"{"a":{"TYPE":1}}"#, true), (#"$[?b && a].c"#, #"{"a":1,"b":1,"C":1}"#, true),
        ("*.task", #"{"a":{"Task":1}}"#, false), ("$", #"{"Task":1}"#, false), ("task", #"["Task"]"#, false),
    ]) func namesInAnotherCaseAreFound(_ path: String, _ text: String, _ isFound: Bool) throws {
        #expect(try document(text).hasLookalike(of: JSONPath(path)) == isFound, "\(path) in \(text)")
    }

    @Test func theWholeDocumentAndItsEdges() throws {
        let list = try document(#"[{"a":1},[2],3]"#)
        #expect(try list.places(JSONPath("$")) == [list.root])
        #expect(try list.places(JSONPath("[*]")).map(list.written) == [#"{"a":1}"#, "[2]", "3"])
        #expect(try list.places(JSONPath("$[1][0]")).map(list.written) == ["2"])
        #expect(try list.places(JSONPath("[3]")).isEmpty)
        #expect(try list.places(JSONPath("*")).isEmpty)
        #expect(try list.places(JSONPath("[?a]")).map(list.written) == [#"{"a":1}"#])
        let names = try document(#"{"$":1,"a b":2,"it's":3,"q\"":4,"":5,"ключ":6,"back\\":7,"x-y_z:1/@#":8}"#)
        for (path, value) in [
            (#""$""#, "1"), ("'a b'", "2"), (#""it's""#, "3"), (#"'it\'s'"#, "3"), (#""q\"""#, "4"), ("''", "5"),
            ("ключ", "6"), (#""back\\""#, "7"), ("x-y_z:1/@#", "8"), (#"["ключ"]"#, "6"), ("$.ключ", "6"),
        ] {
            #expect(try names.places(JSONPath(path)).map(names.written) == [value], "\(path)")
        }
        #expect(try names.places(JSONPath("*")).count == 8)
    }

    @Test func conditionsCompareValuesNotSpellings() throws {
        let document = try document(
            #"[{"k":200},{"k":2.0e2},{"k":"200"},{"k":true},{"k":null},{},{"k":false},{"k":200.0000000000000000001}]"#)
        func indices(_ condition: String) throws -> [Int] {
            let all = Array(document.children(document.root))
            return try document.places(JSONPath("[?\(condition)]")).compactMap { all.firstIndex(of: $0) }
        }
        #expect(try indices("k == 200") == [0, 1])
        #expect(try indices("k==20e1") == [0, 1])
        #expect(try indices("k == '200'") == [2])
        let zero = try JSONCodecTests.document(#"[{"k":-0.0},{"k":0e7},{"k":-1}]"#)
        #expect(try zero.places(JSONPath("[?k == 0]")).count == 2)
        #expect(try indices("k == true") == [3])
        #expect(try indices("k == null") == [4])
        #expect(try indices("k == false") == [6])
        #expect(try indices("k") == [0, 1, 2, 3, 4, 6, 7])
        #expect(try indices("k != 200") == [2, 3, 4, 5, 6, 7])
        #expect(try indices("k && k != null && k != true") == [0, 1, 2, 6, 7])
    }

    static let errors: [(path: String, position: Int, words: String)] = [
        ("", 0, "write $ for the whole document"), (".a", 0, "without a dot"), ("a.", 2, "a name is missing"),
        ("a..b", 2, "two dots"), ("a.[0]", 2, "no dot before a bracket"), ("a b", 1, "in quotes"),
        ("a[", 1, "not closed"), ("a[*.b", 3, "a ] is missing"), ("a[*", 1, "not closed"), ("a[0", 1, "not closed"),
        ("a[-1]", 2, "from the front"), ("a[01]", 2, "no leading zeros"), ("a[1000000]", 2, "below 1000000"),
        ("a[99999999999999999999]", 2, "below 1000000"), ("a[b]", 2, "brackets contain"),
        ("a[]", 2, "brackets contain"),
        ("a]", 1, "a dot precedes a name"), ("\"abc", 0, "not closed"), ("a.'b", 2, "not closed"),
        (#""a\n""#, 2, "after a backslash"), ("a*", 1, "a dot precedes a name"), ("a.*b", 3, "a dot precedes"),
        ("a[?]", 3, "a name is missing"), ("a[?b = 1]", 6, "== or !="), ("a[?b == c]", 8, "a text in quotes"),
        ("a[?b == 01]", 8, "a text in quotes"), ("a[?b == ]", 8, "a text in quotes"), ("a[?b < 1]", 5, "== or !="),
        ("a[?(b == 1)]", 3, "without parentheses"), ("a[?!b]", 3, "!="), ("a[?b || c]", 5, "one path for each"),
        ("a[?b & c]", 6, "&&"), ("a[?b.* == 1]", 5, "no * in it"), ("a[?b[0] == 1]", 4, "no brackets"),
        ("a[?b == 'c]", 8, "not closed"), ("a[?b == 1", 1, "not closed"), ("$a.b.", 5, "a name is missing"),
        ("a\u{0}b", 1, "in quotes"), ("a.(b)", 2, "in quotes"), ("a[0].", 5, "a name is missing"),
        ("a[0]b", 4, "a dot precedes a name"), ("rooms.join.!a:x", 11, "with ! in it in quotes"),
        (String(repeating: "a.", count: 32) + "a", 63, "at most 32 steps"),
        (String(repeating: "a", count: 1025), 1024, "at most 1024 characters"),
    ]

    @Test func errorsPointAtThePlaceInWords() {
        for (path, position, words) in Self.errors {
            let error = #expect(throws: JSONPathError.self, "\(path)") { try JSONPath(path) }
            #expect(
                error?.position == position && error?.reason.contains(words) == true, "\(path): \(error?.reason ?? "")")
        }
        let error = #expect(throws: JSONPathError.self) { try JSONPath("events[*.body") }
        #expect(error?.pointed == "events[*.body\n        ^ a ] is missing here")
        #expect(
            error.map(String.init(describing:))
                == #"the path events[*.body is wrong at character 9, ".body": a ] is missing here"#)
    }

    /// Whatever somebody types, there is an answer.
    @Test func anyTextIsAPathOrAnError() {
        var chance = SeededGenerator(seed: 7)
        let pieces = [
            "a", ".", "[", "]", "*", "?", "==", "!=", "\"", "'", "\\", " ", "0", "12", "&&", "@.", "$", "é", "-",
        ]
        var valid = 0
        for _ in 0..<20_000 {
            let text = (0..<Int.random(in: 0..<9, using: &chance)).map { _ in pieces.randomElement(using: &chance) ?? ""
            }
            .joined()
            do {
                let path = try JSONPath(text)
                valid += 1
                #expect(path.steps.count == path.positions.count && (!path.steps.isEmpty || text == "$"))
            } catch {
                #expect((0...text.unicodeScalars.count).contains(error.position) && !error.reason.isEmpty, "\(text)")
            }
        }
        #expect(valid > 500)
    }

    /// Every value is found by the path that spells out where it is, alone; and among others by the same path with stars.
    @Test(arguments: 1...10 as ClosedRange<UInt64>) func everyPlaceIsFoundByItsOwnPath(_ seed: UInt64) throws {
        var random = RandomDocument(chance: SeededGenerator(seed: seed))
        var count = 0
        for _ in 0..<60 {
            let source = try document(random.text(depth: 3))
            var waiting = [(place: source.root, path: "$", stars: "$")]
            while let (place, path, stars) = waiting.popLast() {
                count += 1
                #expect(try source.place(JSONPath(path)) == place, "\(path)")
                let all = try source.places(JSONPath(stars))
                #expect(all.contains(place) && all.map { source.range($0).lowerBound }.isSorted, "\(stars)")
                #expect(Set(all).count == all.count)
                for (index, child) in source.children(place).enumerated() {
                    if let name = try source.name(child) {
                        waiting.append((child, path + ".\"\(name)\"", stars + ".*"))
                    } else {
                        waiting.append((child, path + "[\(index)]", stars + "[*]"))
                    }
                }
            }
        }
        #expect(count > 200)
    }

    // MARK: Refusals

    @Test func duplicateNamesAreRefusedWhereAPathTouchesThem() throws {
        let document = try document(#"{"a":{"x":1,"\u0078":2},"b":{"c":3},"l":[{"t":1,"t":1},{"t":1}]}"#)
        for path in ["a.x", "a.y", "a.*", "*.c", "l[0].t", "l[?t == 1]", "l[*].t", "a[?x]", "[?a.x == 1].b"] {
            #expect(throws: JSONMatchError.self, "\(path)") { try document.places(JSONPath(path)) }
        }
        for path in ["a", "b.c", "l[1].t", "l[*]"] {
            #expect(try document.places(JSONPath(path)).isEmpty == false, "\(path)")
        }
        #expect(throws: JSONMatchError.duplicateNames(at: 5)) { try document.place(JSONPath("a.x")) }
    }

    @Test func placesAreBounded() throws {
        let document = try document("[" + String(repeating: "0,", count: 99) + "0]")
        let path = try JSONPath("[*]")
        #expect(try document.places(path, limit: 100).count == 100)
        #expect(throws: JSONMatchError.tooManyPlaces) { try document.places(path, limit: 99) }
        #expect(throws: JSONMatchError.tooManyPlaces) { try document.place(path) }
        #expect(try document.place(JSONPath("[7]")) != nil && document.place(JSONPath("[100]")) == nil)
        #expect(path.isPlural)
        #expect(!(try JSONPath("a[0].b").isPlural))
    }

    @Test func explanationsShowHowFarAPathMatched() throws {
        let document = try document(#"{"content":{"body":"x"},"l":[1,2,3,4]}"#)
        let cases = [
            ("content.body", "content.body finds a string at byte 19"),
            ("l[*]", "l[*] finds a number at byte 29, a number at byte 31, a number at byte 33 and 1 more"),
            (
                "content.text",
                "content.text finds nothing: .text (character 8) is not there, the value before it is an object at byte 11"
            ),
            (
                "content.body.x",
                "content.body.x finds nothing: .x (character 13) is not there, the value before it is a string at byte 19"
            ),
            (
                "l[9].x",
                "l[9].x finds nothing: [9] (character 2) is not there, the value before it is an array at byte 28"
            ),
        ]
        for (path, words) in cases { #expect(document.explanation(of: try JSONPath(path)) == words) }
        // of several places that came as far, the first
        let first = "l[*].x finds nothing: .x (character 5) is not there, the value before it is a number at byte 29"
        #expect(document.explanation(of: try JSONPath("l[*].x")) == first)
        let twice = try JSONCodecTests.document(#"{"a":1,"a":1}"#)
        #expect(twice.explanation(of: try JSONPath("a")).contains("has two members with the same name"))
    }
}

extension Array where Element: Comparable {
    fileprivate var isSorted: Bool { zip(self, dropFirst()).allSatisfy { $0 < $1 } }
}
