// Reads a folder of pictures with a folder for each class, as torchvision's ImageFolder does:
//
//   FOLDER/cat/1.jpg, FOLDER/cat/more/2.png, FOLDER/dog/3.jpeg
//
// Classes are numbered in the order of the bytes of their names. Files that end in .jpg, .jpeg or
// .png are pictures, in the order of their folders and names; others are left out, with a warning
// that counts them. Links are followed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/data/transforms.h"

namespace weft::pictures {

struct Picture {
  std::string path;
  int64_t label = 0;
  uint64_t bytes = 0;  // of the file
};

struct ImageFolder {
  std::string path;
  std::vector<std::string> classes;  // by label
  std::vector<Picture> pictures;
};

// `known` are the classes of the training set: labels are their indices. A folder of another class
// is an error; a class of `known` without a folder has no pictures. Throws Error(data) for a folder
// that has no classes, a class that has no pictures, and for folders that are nested deeper than 32
// levels.
ImageFolder read_image_folder(const std::string& path,
                              const std::optional<std::vector<std::string>>& known = {});

// Returns whether a path ends in .jpg, .jpeg or .png, in any case.
bool is_picture(const std::string& path);
// Returns the paths of a folder's pictures, then of its subfolders' pictures, by name. Throws
// Error(data) for a folder without a picture, or nested deeper than 32 levels.
std::vector<std::string> pictures_below(const std::string& folder);

// Returns the shape [C, H, W] that the first picture has, before transforms.
Shape first_shape(const ImageFolder& folder, int channels);

// Returns the pictures at `indices`. A picture is decoded whenever its sample is written, in the
// thread of the loader, so bytes() counts the list of files alone; write() takes memory for one
// decoded picture. write() throws Error(data) that names the file. The fingerprint hashes names,
// labels and sizes of the files, not their contents.
std::shared_ptr<const data::Source> image_folder_source(std::shared_ptr<const ImageFolder> folder,
                                                        std::vector<int64_t> indices,
                                                        data::ImageTransform transform);

}  // namespace weft::pictures
