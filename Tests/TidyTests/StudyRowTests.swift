import Foundation
import TestThreads
import Testing

/// Pages list what the studies of other messengers found, each row with its tests. A test that is renamed or removed must
/// not leave a row behind.
@Suite(.blocking) struct StudyRowTests {
    /// The pages, with the number of rows that the studies have.
    private static let pages = [
        ("Tests/PawlMessengerTests/ROWS.md", 23), ("Tests/PawlMessengerTests/Calls/ROWS.md", 42),
        ("Tests/TransportsTests/README.md", 30),
    ]

    /// A test stands in back quotes as `Suite.test`; a suite alone stands for all of its tests.
    @Test(arguments: pages) func theTestsOfEachRowExist(_ page: String, _ rows: Int) throws {
        let text = try String(contentsOf: TidyTests.root.appending(path: page), encoding: .utf8)
        let lines = text.split(separator: "\n").filter { $0.hasPrefix("| ") && !$0.hasPrefix("| row ") }
        #expect(lines.count >= rows)
        let files = TidyTests.files("Tests")
        let reference = /`([A-Z]\w*(?:Tests|Conformance))(?:\.(\w+))?`/
        for line in lines {
            for match in line.matches(of: reference) where match.2 != "swift" {
                let isSuite = { (text: String) in
                    ["struct ", "extension ", "class "].contains { text.contains($0 + match.1) }
                }
                let isThere = files.contains { file in isSuite(file.text) }
                let hasTest =
                    match.2.map { name in files.contains { $0.text.contains("func \(name)(") } } ?? true
                #expect(isThere && hasTest, "\(page) names \(match.0), which is not there")
            }
        }
    }

    /// Every row of the messenger's pages has a test.
    @Test(arguments: pages.prefix(2).map(\.0)) func everyRowHasATest(_ page: String) throws {
        let text = try String(contentsOf: TidyTests.root.appending(path: page), encoding: .utf8)
        for line in text.split(separator: "\n") where line.hasPrefix("| ") && !line.hasPrefix("| row ") {
            #expect(line.contains(/`[A-Z]\w*\.\w+`/), "\(line)")
        }
    }
}
